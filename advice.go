package percolator

import "errors"

// advice is what to do about the errors, the first that matches: what the command line
// prints after "next:". Text in backquotes is a command of percolator's.
var advice = []struct {
	err  error
	text string
}{
	// First: what it came with advises to try again.
	{ErrCommitUnknown, "read the cells (`get`, `history`) before you try again"},
	{ErrDiskFull, "free space on that node's disk, or grow it: writes are taken again by " +
		"themselves; `status` shows how much is free"},
	{ErrUnavailable, "start a node (`start --dir D --insecure`) or name one with --addr"},
	{ErrOverloaded, "try again in a moment"},
	{ErrNoTable, "`table ls` lists the tables, `table create NAME` creates one"},
	{ErrSnapshotTooOld, "history is kept for a limited time (`cluster show`): ask for a later " +
		"timestamp"},
	{ErrNotifyOnly, "`observer ls` shows which columns are weak"},
	{ErrTooLarge, "make it smaller: rows hold 4 KiB, columns 1 KiB, values 4 MiB by default"},
	{ErrLocked, lockAdvice},
	{ErrConflict, lockAdvice},
	{ErrPermission, "use a certificate of the role that this takes (--certs); " +
		"`cert create-client NAME --role ROLE --ca-dir CA` makes one"},
	{ErrManagedTx, "an observer returns nil to commit, and an error to roll back"},
	{ErrTxDone, "begin another transaction: each commits or rolls back once"},
	{ErrClosed, "open the node, or dial, again"},
}

const lockAdvice = "nothing was written: try again, or look who holds it with `lock ls`"

// Advice says what to do about an error of this package, as the command line does after
// "next:", for programs that show errors to people; empty if it knows nothing. Text in
// backquotes is a command of percolator's.
func Advice(err error) string {
	for _, a := range advice {
		if errors.Is(err, a.err) {
			return a.text
		}
	}
	return ""
}
