package admin

import (
	"sync"
	"time"
)

// LastAnswer is the last answer that meta or another node has given to one question: what
// operators are told while nobody answers it. Its values are shared and must not be
// changed. The zero value has no answer. It may be used concurrently.
type LastAnswer[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time // when it came; zero: there was none
}

// Set stores an answer that has just come.
func (l *LastAnswer[T]) Set(value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The age counts from now, not from when the answer was true.
	l.value, l.at = value, time.Now()
}

// Forget drops the last answer, because somebody else has a better one.
func (l *LastAnswer[T]) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var none T
	l.value, l.at = none, time.Time{}
}

// Get returns the last answer and its age; ok is false if there was none.
func (l *LastAnswer[T]) Get() (value T, age time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, time.Since(l.at), !l.at.IsZero()
}

// GetMs is like Get, with the age in the form that messages have, see AgeMs.
func (l *LastAnswer[T]) GetMs() (value T, ageMs int64) {
	value, age, ok := l.Get()
	return value, AgeMs(age, ok)
}

// AgeMs returns an age as messages have it: in milliseconds, -1 if it is not known.
func AgeMs(age time.Duration, ok bool) int64 {
	if !ok {
		return -1
	}
	return age.Milliseconds()
}
