package admin

import (
	"sync"
	"time"
)

// LastAnswer is the last answer to one question that meta or another node has given: what
// operators are told while nobody answers it. Values are shared, not to be changed. The
// zero value has none. It may be used concurrently.
type LastAnswer[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time // when it came; zero: there was none
}

// Set keeps an answer that has come just now.
func (l *LastAnswer[T]) Set(value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value, l.at = value, time.Now()
}

// Forget drops the last answer: somebody else has a better one.
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

// GetMs is Get with the age as messages have it.
func (l *LastAnswer[T]) GetMs() (value T, ageMs int64) {
	value, age, ok := l.Get()
	return value, AgeMs(age, ok)
}

// AgeMs is an age in messages: in milliseconds, -1 for what is not known.
func AgeMs(age time.Duration, ok bool) int64 {
	if !ok {
		return -1
	}
	return age.Milliseconds()
}
