package health

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Findings about observers: waiting work, and why it waits.

func (e *examination) observer(o *pb.ObserverState) {
	name, subject := pastableName(o.GetInfo().GetName()), "observer "+o.GetInfo().GetName()
	waiting := o.GetNotifications() // excludes parked ones
	switch {
	case o.GetInfo().GetRetired():
		return // the observer's work is being removed
	case waiting > 0 && o.GetInfo().GetPaused():
		e.add(warning, ObserverPaused, subject, fmt.Sprintf("It is paused, and %s.", wait(waiting)), remedy(inspect.AdviceResume, name))
	case waiting > 0 && !o.GetLinked():
		e.add(critical, ObserverUnlinked, subject,
			fmt.Sprintf("No process of the cluster runs it, and %s.", wait(waiting)),
			"Start nodes with the program that registers it, or remove its work: `percolator observer retire "+
				name+" --yes`.")
	case waiting > 0 && o.GetOldestTs() > 0 && e.since(o.GetOldestTs()) >= behind:
		e.add(warning, ObserverBehind, subject,
			fmt.Sprintf("It is behind: %s, the oldest for %s.", wait(waiting), inspect.Span(e.since(o.GetOldestTs()))),
			behindRemedy(o.GetStatus()))
	}
	e.fruitless(name, subject, o.GetStatus())
	e.outside(name, subject, o.GetStatus().GetOutside())
	if o.GetParked() > 0 {
		e.add(warning, ObserverParked, subject,
			plural(o.GetParked(), "notification")+" parked after too many failures.",
			fmt.Sprintf("`percolator notify ls --parked --observer %s` shows the errors; fix the cause, then "+
				"`percolator notify replay %s --all-parked`.", name, name))
	}
	if n := o.GetStatus().GetStuck(); n > 0 {
		e.add(warning, ObserverStuck, subject, plural(n, "run")+" past the deadline that cannot be cancelled.",
			remedy(inspect.AdviceStuck, name))
	}
}

// behindRemedy returns the remedy for an observer whose oldest notification has waited too long.
func behindRemedy(s *pb.ObserverStatus) string {
	switch {
	case repeatingRows(s) > 0:
		return "Make sure that it does not trigger itself (observer-repeating) before adding nodes."
	case s.GetOutside() != nil:
		return "Restore the service that its runs wait for (observer-outside); more nodes do not help."
	case s.GetUnserved() > 0:
		return "Restore the service that its runs wait for (observer-unserved); more nodes do not help."
	}
	return "If the processors are busy, add nodes; otherwise raise `--observer-workers`. `percolator " +
		"observer ls` lists the runs."
}

// repeatingRows returns the number of rows for which the observer runs very often.
func repeatingRows(s *pb.ObserverStatus) (rows int) {
	for _, r := range s.GetRows() {
		if r.GetRuns() > 0 {
			rows++
		}
	}
	return rows
}

// fruitless reports runs that keep failing, and runs that keep triggering more runs.
func (e *examination) fruitless(name, subject string, s *pb.ObserverStatus) {
	if n := s.GetContended(); n > 0 {
		e.add(warning, ObserverContended, subject,
			plural(n, "cell")+" whose runs keep losing conflicts to other transactions.",
			remedy(inspect.AdviceContended, name))
	}
	if n := s.GetUnserved(); n > 0 {
		e.add(info, ObserverUnserved, subject, plural(n, "cell")+" whose runs keep failing: "+
			"the function reports that something is unavailable, or nodes do not answer.",
			"The runs are retried automatically. Check the services that the function needs; the log lists "+
				"the failed runs.")
	}
	loops := map[string]int{} // number of rows by cycle; findings name no rows: they need no login
	for _, r := range s.GetRows() {
		if r.GetCycle() != "" {
			loops[r.Cycle]++
		}
	}
	for _, cycle := range slices.Sorted(maps.Keys(loops)) {
		e.add(warning, ObserverLoop, subject, fmt.Sprintf("It sets itself off, %s, for %s, so that these runs are "+
			"slowed down.", cycle, plural(loops[cycle], "row")), remedy(inspect.AdviceLoop, name))
	}
	if n := repeatingRows(s); n > 0 && len(loops) == 0 {
		e.add(info, ObserverRepeating, subject, "It runs for "+plural(n, "row")+
			" hundreds of times within 10 s.", remedy(inspect.AdviceRepeating, name))
	}
}

// remedy returns advice of package inspect as a sentence. The program is called percolator, as in all
// remedies.
func remedy(advice, observer string) string {
	text := inspect.Commands{Program: "percolator"}.Advice(advice, inspect.Operand{What: "OBSERVER", Value: observer})
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// outsideMatters is the least wait for an external service that is a finding: a rate limit causes
// shorter waits.
const outsideMatters = 1000 // ms

// outside reports the wait for an external service that has refused the observer's runs.
func (e *examination) outside(name, subject string, w *pb.OutsideWait) {
	if max(w.GetWaitedMs(), w.GetNextMs()) < outsideMatters {
		return
	}
	out := inspect.NewOutside(w, mvcc.TimestampAt(e.status.GetUnixMs()))
	text := "It is " + out.String() + "."
	if out.Error != "" {
		text = "It is " + out.String() + ": " + inspect.FirstLine(out.Error)
	}
	e.add(warning, ObserverOutside, subject, text, remedy(inspect.AdviceOutside, name))
}

// wait returns "1 notification waits" or "5 notifications wait".
func wait(n uint64) string {
	if n == 1 {
		return "1 notification waits"
	}
	return fmt.Sprintf("%d notifications wait", n)
}

// plain matches names that need no quoting in a shell.
var plain = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// pastableName returns the name if it is safe to paste into a shell, and a placeholder otherwise:
// programs choose names freely.
func pastableName(name string) string {
	if plain.MatchString(name) {
		return name
	}
	return "NAME"
}
