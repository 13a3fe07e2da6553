package health

import (
	"fmt"
	"time"

	"github.com/percolator-go/percolator/internal/inspect"
)

// Findings about scheduled backups, and about the expiry of cells.

// lateIntervals is the number of intervals of a schedule after which its newest backup is late.
const lateIntervals = 2

// schedules reports schedules whose last attempt failed, whose newest backup is late, or whose old
// backups could not be removed.
func (e *examination) schedules() {
	for _, s := range e.status.GetSchedules() {
		subject := "backup schedule " + s.GetName()
		age := time.UnixMilli(e.status.GetUnixMs()).Sub(time.UnixMilli(max(s.SuccessUnixMs, s.FirstUnixMs)))
		newest := "there is none"
		if s.SuccessUnixMs != 0 {
			newest = fmt.Sprintf("the newest is %s old", inspect.Span(age))
		}
		run := fmt.Sprintf("`percolator backup schedule run %s` retries at once.", pastableName(s.GetName()))
		switch {
		case s.GetError() != "":
			e.add(warning, BackupLate, subject, fmt.Sprintf("Its last backup failed (%s): %s.", newest, s.GetError()),
				"Fix the cause that the error names; the node retries every few minutes. "+run)
		case age > lateIntervals*time.Duration(s.GetEveryMs())*time.Millisecond:
			e.add(warning, BackupLate, subject, "Backups are late: "+newest+".",
				"The node that leads meta makes them: check its log and `percolator jobs`. "+run)
		case s.GetPruneError() != "":
			e.add(warning, BackupLate, subject, "Old backups could not be removed: "+s.GetPruneError()+".",
				"Fix the cause that the error names; the removal is retried after the next backup.")
		}
	}
}

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
