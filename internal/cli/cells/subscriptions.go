package cells

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// SubscriptionCommand groups the commands for subscriptions to changes.
func SubscriptionCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("subscription", "List and delete the stored positions of subscribers to changes",
		"subscription ls\nsubscription delete audit", subscriptionList(d), subscriptionDelete(d))
}

func subscriptionList(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:   "ls",
		Short: "List the subscriptions to changes",
		Long: `List the positions that subscribers to changes have stored. History is kept from each position on, up to
collection-max-hold; a subscription that is lost has to begin again.`,
		Example: "subscription ls",
	}, func(ctx context.Context, s *shell.Session, _ []string) error {
		all, err := s.DB.Subscriptions(ctx)
		if err != nil {
			return err
		}
		list := d.Out.Listing("SUBSCRIPTION, POSITION, AS OF, HISTORY, BY")
		for _, sub := range all {
			at, history := "", "held"
			if sub.Position != 0 {
				at = sub.Position.Time().UTC().Format(time.RFC3339)
			}
			switch {
			case sub.Lost:
				history = "lost"
			case sub.Position == 0:
				history = "none"
			}
			list.Add(struct {
				Name     string `json:"name"`
				Position uint64 `json:"position"`
				By       string `json:"by,omitempty"`
				Lost     bool   `json:"lost"`
			}{sub.Name, uint64(sub.Position), sub.By, sub.Lost}, inspect.Printable(sub.Name), sub.Position, at, history,
				inspect.Printable(sub.By))
		}
		return list.End()
	})
}

func subscriptionDelete(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a subscription, and with it its hold on history",
		Long: `Delete the stored position of a subscriber to changes. History is no longer kept for it. Only the client
that created it, or an operator, may do so. It succeeds if there is none.`,
		Example: "subscription delete audit",
	}, func(ctx context.Context, s *shell.Session, args []string) error {
		err := s.DB.DeleteSubscription(ctx, args[0])
		return d.Out.Done(err, "subscription %s is deleted", inspect.Printable(args[0]))
	})
}
