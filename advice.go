package percolator

import "errors"

// advice maps errors to the next step; the first match applies. Text in backquotes is a
// percolator command.
var advice = []struct {
	err  error
	text string
}{
	// First, since it may wrap an error whose advice is to try again.
	{ErrCommitUnknown, "read the cells (`get`, `history`) before you try again"},
	{ErrDiskFull, "free or add on that node what the error names, such as disk space: it then " +
		"accepts writes again; `status` shows the free space"},
	{ErrUnavailable, "start a node (`start --dir D --insecure`) or name one with --addr"},
	{ErrOverloaded, "try again in a moment"},
	{ErrNoTable, "`table ls` lists the tables, `table create NAME` creates one"},
	{ErrSnapshotTooOld, "read at a later timestamp: `cluster show` prints how long history is kept"},
	{ErrNotifyOnly, "`observer ls` shows which columns are weak"},
	{ErrTooLarge, "reduce its size: by default a row may have 4 KiB, a column 1 KiB, a value 4 MiB"},
	{ErrLocked, lockAdvice},
	{ErrConflict, lockAdvice},
	{ErrPermission, "use a certificate with the required role (--certs); " +
		"`cert create-client NAME --role ROLE --ca-dir CA` creates one"},
	{ErrManagedTx, "an observer returns nil to commit, and an error to roll back"},
	{ErrTxDone, "begin another transaction: each commits or rolls back once"},
	{ErrClosed, "open the node or dial again"},
}

const lockAdvice = "nothing was written: try again; `lock ls` shows which transaction holds the lock"

// Advice returns the remedy for an error of this package: the text that the command line prints
// after "next:". It returns "" for other errors. Text in backquotes is a percolator command.
func Advice(err error) string {
	for _, a := range advice {
		if errors.Is(err, a.err) {
			return a.text
		}
	}
	return ""
}
