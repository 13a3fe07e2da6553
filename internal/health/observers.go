package health

import (
	"fmt"
	"regexp"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file examines observers: what waits for them, and why it does.

func (e *examination) observer(o *pb.ObserverState) {
	name, subject := typable(o.GetInfo().GetName()), "observer "+o.GetInfo().GetName()
	waiting := o.GetNotifications() // those that are parked do not count
	switch {
	case o.GetInfo().GetRetired():
		return // its work is being removed
	case waiting > 0 && o.GetInfo().GetPaused():
		e.add(warning, ObserverPaused, subject, fmt.Sprintf("It is paused, and %s.", wait(waiting)),
			"When its reason is gone: `percolator observer resume "+name+"`.")
	case waiting > 0 && !o.GetLinked():
		e.add(critical, ObserverUnlinked, subject,
			fmt.Sprintf("No process of the cluster runs it, and %s.", wait(waiting)),
			"Start nodes with the program that registers it, or remove its work: `percolator observer retire "+
				name+" --yes`.")
	case waiting > 0 && o.GetOldestTs() > 0 && e.since(o.GetOldestTs()) >= behind:
		e.add(warning, ObserverBehind, subject,
			fmt.Sprintf("It is behind: %s, the oldest for %s.", wait(waiting), span(e.since(o.GetOldestTs()))),
			behindRemedy(o.GetStatus()))
	}
	e.fruitless(name, subject, o.GetStatus())
	if o.GetParked() > 0 {
		e.add(warning, ObserverParked, subject,
			plural(o.GetParked(), "notification")+" parked after too many failures.",
			fmt.Sprintf("`percolator notify ls --parked --observer %s` shows the errors; mend the cause, then "+
				"`percolator notify replay %s --all-parked`.", name, name))
	}
	if n := o.GetStatus().GetStuck(); n > 0 {
		e.add(warning, ObserverStuck, subject, plural(n, "run")+" past the deadline that cannot be ended.",
			"The function ignores its context. `percolator observer ls -o json` names the rows; only a restart of the "+
				"node ends them.")
	}
}

// behindRemedy is what helps an observer whose oldest notification has waited for long.
func behindRemedy(s *pb.ObserverStatus) string {
	switch {
	case repeated(s) > 0:
		return "See that it does not set itself off (observer-repeating) before adding nodes."
	case s.GetUnserved() > 0:
		return "Bring back what its runs wait for (observer-unserved); more nodes don't help."
	}
	return "If the processors are busy add nodes, else raise `--observer-workers`; `percolator " +
		"observer ls` shows what runs."
}

// repeated is how many rows the observer runs for very often.
func repeated(s *pb.ObserverStatus) (rows int) {
	for _, r := range s.GetRows() {
		if r.GetRuns() > 0 {
			rows++
		}
	}
	return rows
}

// fruitless tells of runs that come to nothing, or set off the next ones, for ever.
func (e *examination) fruitless(name, subject string, s *pb.ObserverStatus) {
	if n := s.GetContended(); n > 0 {
		e.add(warning, ObserverContended, subject,
			plural(n, "cell")+" whose runs come to nothing again and again: other transactions are always faster.",
			fmt.Sprintf("Let it have fewer runs at once, `percolator observer limit %s 1`, or spread what they all write "+
				"over several rows.", name))
	}
	if n := s.GetUnserved(); n > 0 {
		e.add(info, ObserverUnserved, subject, plural(n, "cell")+" whose runs come to nothing again and "+
			"again: the function says that something is unavailable, or nodes do not answer.",
			"It goes on by itself. Look whether what the function needs answers; runs that fail for it are "+
				"in the log.")
	}
	if n := repeated(s); n > 0 {
		e.add(info, ObserverRepeating, subject, "It runs for "+plural(n, "row")+
			" hundreds of times within ten seconds.",
			fmt.Sprintf("See whether it writes the column that it observes, or an observer that it triggers does: that "+
				"never ends. `percolator observer ls -o json` names the rows, `percolator observer pause %s` stops it.",
				name))
	}
}

// wait is "1 notification waits" or "5 notifications wait".
func wait(n uint64) string {
	if n == 1 {
		return "1 notification waits"
	}
	return fmt.Sprintf("%d notifications wait", n)
}

// plain is a name that a shell takes as it stands.
var plain = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// typable is the name as a command line may have it that somebody pastes into a shell. Any
// program may choose a name, so one that a shell would not take as it stands is left to be
// filled in.
func typable(name string) string {
	if plain.MatchString(name) {
		return name
	}
	return "NAME"
}
