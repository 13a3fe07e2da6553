package health

import (
	"fmt"
	"time"

	"github.com/percolator-go/percolator/internal/inspect"
)

// Findings about the expiry of cells.

// expiry reports rules whose expired cells have not been deleted for too long.
func (e *examination) expiry() {
	for _, n := range e.status.GetNodes() {
		for _, r := range n.GetStatus().GetExpiry().GetRules() {
			lag := time.Duration(r.GetLagMs()) * time.Millisecond
			if lag-time.Duration(r.GetToleratedMs())*time.Millisecond <= lateExpiry {
				continue
			}
			column := fmt.Sprintf("column %s", pastableName(string(r.GetColumn())))
			if r.GetOthers() {
				column = "its columns"
			}
			text := fmt.Sprintf("Expired cells of %s have been due for %s.", column, inspect.Span(lag))
			remedy := "Look for observers that are behind, and for load: the deletions wait for both."
			if r.GetError() != "" {
				text = fmt.Sprintf("Expired cells of %s have been due for %s: %s.", column, inspect.Span(lag), r.GetError())
				remedy = "Fix the cause that the error names; the node that leads meta retries every few seconds."
			}
			e.add(warning, ExpiryLate, "table "+r.GetTableName(), text, remedy)
		}
	}
}
