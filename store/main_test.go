package store_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Close joins everything that Open started.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
