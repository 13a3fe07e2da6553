package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// observerPause stops runs, not changes: what is written meanwhile waits.
func (r *run) observerPause() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause OBSERVER",
		Short: "Start no more runs of an observer, on all nodes; what changes waits",
		Long: `Start no more runs of an observer, on all nodes, until it is resumed. Runs under way end. Changes go on being noted and
wait; loaders are not slowed by them. Pausing a paused observer is no error.`,
		Example: r.example("observer pause count"),
		Args:    argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			paused := true
			return r.control(cmd, &pb.ControlObserverRequest{Name: args[0], Paused: &paused}, "observer %s is paused")
		},
	}
	return r.withClient(cmd)
}

// observerResume undoes pause.
func (r *run) observerResume() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "resume OBSERVER",
		Short:   "Let a paused observer run again",
		Example: r.example("observer resume count"),
		Args:    argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			paused := false
			return r.control(cmd, &pb.ControlObserverRequest{Name: args[0], Paused: &paused}, "observer %s is running")
		},
	}
	return r.withClient(cmd)
}

// observerLimit sets how many runs a process may have at once.
func (r *run) observerLimit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limit OBSERVER N",
		Short: "Let an observer have at most N runs at once in each process; 0: as it was registered",
		Long: `Let an observer have at most N runs at once in each process, on all nodes, from now on. 0 goes back to what the program
registered it with. To stop it altogether, pause it.`,
		Example: r.example("observer limit count 2", "observer limit count 0"),
		Args:    argsBetween(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			// No limit of zero runs: zero means "as registered" in the protocol, and
			// pausing is its own command.
			n, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil {
				return usagef(cmd, "N is a number from 0 on, not %q", args[1])
			}
			limit := uint32(n)
			text := fmt.Sprintf("observer %%s has at most %d runs at once in each process", limit)
			if limit == 0 {
				text = "observer %s has as many runs at once as it was registered with"
			}
			return r.control(cmd, &pb.ControlObserverRequest{Name: args[0], Limit: &limit}, text)
		},
	}
	return r.withClient(cmd)
}

// observerRetire can't be undone, so it wants to be meant.
func (r *run) observerRetire() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "retire OBSERVER --yes",
		Short: "Remove an observer and its notifications from the cluster",
		Long: `Remove an observer from the cluster's catalogue, with all that waits for it. Its column is not observed any more; what
its runs have written stays. A program that still registers it brings it back when it starts: retire it once no program
does. --yes says that it is meant: what waited can't be had back but by a replay. At a terminal the command asks for the
observer's name instead.`,
		Example: r.example("observer retire count --yes"),
		Args:    argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cost := fmt.Sprintf("retiring %s drops its notifications (`observer pause` only stops it)", printable(args[0]))
			if err := r.confirm(cmd, yes, args[0], cost); err != nil {
				return err
			}
			return r.control(cmd, &pb.ControlObserverRequest{Name: args[0], Retire: true}, "observer %s is retired")
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "it is meant")
	return r.withClient(cmd)
}

// control asks meta for a change and confirms it once all honour it.
func (r *run) control(cmd *cobra.Command, req *pb.ControlObserverRequest, text string) error {
	return r.talk(cmd, func(ctx context.Context, s *session) error {
		// It answers when every tablet and the node's dispatcher honour the change: what
		// is printed is so.
		answer, err := s.admin.ControlObserver(ctx, req)
		if err != nil {
			return r.aboutObserver(ctx, s, req.Name, err)
		}
		info := answer.GetInfo()
		if r.output == outputJSON {
			return r.object(struct {
				Name    string `json:"name"`
				Paused  bool   `json:"paused"`
				Limit   uint32 `json:"limit"`
				Retired bool   `json:"retired"`
			}{req.Name, info.GetPaused(), info.GetLimit(), info.GetRetired() || req.Retire})
		}
		return r.print(text, printable(req.Name))
	})
}

// aboutObserver adds what to do to a refusal: most often the name is wrong, and the
// catalogue knows.
func (r *run) aboutObserver(ctx context.Context, s *session, name string, err error) error {
	catalogue, asking := s.transport.Catalogue(ctx)
	if asking != nil {
		return err // the first error says more
	}
	if findObserver(catalogue, name) == nil {
		return &hintError{err: err, hint: fmt.Sprintf("`%s observer ls` lists the observers", r.Name)}
	}
	return err
}

// findObserver looks an observer up by name; nil if there is none.
func findObserver(c *pb.Catalogue, name string) *pb.ObserverInfo {
	for _, o := range c.GetObservers() {
		if o.Name == name {
			return o
		}
	}
	return nil
}
