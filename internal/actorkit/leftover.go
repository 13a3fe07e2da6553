package actorkit

import "github.com/asynkron/protoactor-go/actor"

// Leftover is a message that somebody waits for an answer to: a Call, or what carries calls.
type Leftover interface {
	// Dead answers that the message has reached nobody.
	Dead()
}

// Mailbox is the mailbox of actors that take calls. What is left in it when its actor has
// stopped is answered with ErrStopped; protoactor drops it without a word.
func Mailbox() actor.PropsOption {
	return actor.WithMailbox(func() actor.Mailbox { return actor.Unbounded(&leftovers{})() })
}

// leftovers watches one mailbox. All its methods but MessagePosted run on the goroutine
// that empties the mailbox.
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
