package percolator_test

import (
	"errors"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// A function that an observer calls finds the wait that a service has asked for.
func ExampleRetryAfterError() {
	err := fmt.Errorf("embed: %w",
		percolator.RetryAfter(errors.New("429 Too Many Requests"), 2*time.Second))
	if refused, ok := errors.AsType[*percolator.RetryAfterError](err); ok {
		fmt.Println(refused.Wait, refused.Err)
	}
	// Output: 2s 429 Too Many Requests
}
