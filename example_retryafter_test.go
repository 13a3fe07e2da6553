package percolator_test

import (
	"errors"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// A function of an observer returns the wait that a service has requested.
func ExampleRetryAfterError() {
	err := fmt.Errorf("embed: %w",
		percolator.RetryAfter(errors.New("429 Too Many Requests"), 2*time.Second))
	if refused, ok := errors.AsType[*percolator.RetryAfterError](err); ok {
		fmt.Println(refused.Wait, refused.Err)
	}
	// Output: 2s 429 Too Many Requests
}
