package actorkit

import "github.com/asynkron/protoactor-go/actor"

// Leftover is a message whose sender waits for an answer: a Call, or a message that holds
// calls.
type Leftover interface {
	// Dead informs the sender that no actor has handled the message.
	Dead()
}

// Mailbox returns the mailbox option for actors that take calls. Calls that are left in the
// mailbox when its actor has stopped fail with ErrStopped; protoactor would drop them
// silently.
func Mailbox() actor.PropsOption {
	return actor.WithMailbox(func() actor.Mailbox { return actor.Unbounded(&leftovers{})() })
}

// leftovers watches one mailbox. Only MessageReceived, on the goroutine that empties the mailbox,
// uses its state.
type leftovers struct{ stopped bool }

var _ actor.MailboxMiddleware = (*leftovers)(nil)

// MessageReceived comes after the actor has handled the message, or, once it has stopped,
// after it was dropped.
func (l *leftovers) MessageReceived(message any) {
	switch m := message.(type) {
	case *actor.Stop:
		l.stopped = true
	case Leftover:
		if l.stopped {
			m.Dead()
		}
	}
}

// MailboxStarted implements actor.MailboxMiddleware.
func (l *leftovers) MailboxStarted() {}

// MessagePosted implements actor.MailboxMiddleware.
func (l *leftovers) MessagePosted(any) {}

// MailboxEmpty implements actor.MailboxMiddleware.
func (l *leftovers) MailboxEmpty() {}
