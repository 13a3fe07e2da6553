package admin

import (
	"sync"
	"time"
)

// LastAnswer is the last response of meta or another node to one query, shown to operators while
// no node responds. Its values are shared and must not be changed. The zero value has no
// response. It is safe for concurrent use.
type LastAnswer[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time // when it arrived; zero if there is none
}

// Set stores a response that has just arrived.
func (l *LastAnswer[T]) Set(value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The age counts from the arrival, not from when the response was true.
	l.value, l.at = value, time.Now()
}

// Forget drops the last response, because another node has a better one.
func (l *LastAnswer[T]) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var none T
	l.value, l.at = none, time.Time{}
}

// Get returns the last response and its age; ok is false if there is none.
func (l *LastAnswer[T]) Get() (value T, age time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, time.Since(l.at), !l.at.IsZero()
}

// GetMs is like Get, with the age in the form used in messages, see AgeMs.
func (l *LastAnswer[T]) GetMs() (value T, ageMs int64) {
	value, age, ok := l.Get()
	return value, AgeMs(age, ok)
}

// AgeMs returns an age as used in messages: in milliseconds, or -1 if unknown.
func AgeMs(age time.Duration, ok bool) int64 {
	if !ok {
		return -1
	}
	return age.Milliseconds()
}
