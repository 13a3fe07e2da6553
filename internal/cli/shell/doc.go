// Package shell has what the commands of a command line share: what a program injects (App), the
// printer of answers and notes, the connection to a node, errors with exit codes and advice,
// arguments and flags, confirmation, and progress.
//
// A command is a function that returns a *cobra.Command and closes over Deps: the printer (-o,
// notes, tables; output.go) and the connector (--addr, certificates, --timeout, signals;
// client.go). A command that talks to a node gets a Session (session.go), one connection.
// errors.go chooses the exit code and the advice for an error, arguments.go decodes bytes,
// numbers and ranges, text.go writes for people, confirm.go asks before what
// cannot be undone. The invariants are those of package cli, which calls all of it on the
// goroutine of the command; a Meter's methods may be called concurrently.
//
// A crash leaves nothing behind.
package shell
