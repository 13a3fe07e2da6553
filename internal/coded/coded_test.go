package coded_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/percolator-go/percolator/internal/coded"
)

// TestMessages: the package's name begins a text once, however deeply errors are wrapped, and
// errors.Is finds codes.
func TestMessages(t *testing.T) {
	gone, full := coded.New("db", "no such table"), coded.New("db", "too full")
	other := errors.New("disk: db: is a word of this text")
	wrapped := coded.Errorf("db", "%w: table %q: %w", gone, "t", other)
	for _, c := range []struct {
		err           error
		text, message string
	}{
		{gone, "db: no such table", "no such table"},
		{wrapped, `db: no such table: table "t": disk: db: is a word of this text`,
			`no such table: table "t": disk: db: is a word of this text`},
		{coded.Errorf("", "line %d: %w", 3, wrapped),
			`line 3: no such table: table "t": disk: db: is a word of this text`, ""},
		{errors.Join(gone, full), "db: no such table\ndb: too full", "no such table\ntoo full"},
		{coded.Errorf("", "%w", errors.Join(gone, full)), "no such table\ntoo full", ""},
		{coded.Mark(gone, full), "db: no such table", "no such table"},
		{fmt.Errorf("by others: %w: %w", gone, full), "by others: db: no such table: db: too full", ""},
	} {
		message := c.message
		if message == "" {
			message = c.text
		}
		if c.err.Error() != c.text || coded.Text(c.err) != message {
			t.Errorf("CODED: %q, %q; want %q, %q", c.err.Error(), coded.Text(c.err), c.text, message)
		}
	}
	if !errors.Is(wrapped, gone) || !errors.Is(wrapped, other) || errors.Is(wrapped, full) {
		t.Error("the codes of a wrapping error are not those of what it wraps")
	}
	if marked := coded.Mark(gone, full); !errors.Is(marked, gone) || !errors.Is(marked, full) {
		t.Error("a mark adds no code")
	}
}
