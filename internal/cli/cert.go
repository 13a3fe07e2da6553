package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/certs"
)

// certFlags are the flags of the commands that make certificates.
type certFlags struct {
	dir, ca, name string
	hosts         []string
	days          int
	force         bool
}

// request is what the flags ask for.
func (f *certFlags) request() certs.Request {
	return certs.Request{
		Dir: f.dir, CA: f.ca, Name: f.name, Hosts: f.hosts, Lifetime: time.Duration(f.days) * 24 * time.Hour, Force: f.force,
	}
}

// certCommand holds the commands about certificates. They talk to no node.
func (r *run) certCommand() *cobra.Command {
	cmd := group("cert", "Make the certificates of a cluster", r.example("cert create-ca", "cert create-node n1 --host 10.0.0.1", "cert create-client ann"),
		r.certCreateCA(), r.certCreateNode(), r.certCreateClient(), r.certShow(), r.certGossipKey())
	cmd.Long = `Make what protects a cluster: an authority of its own, a certificate for each node and each client that it signs, and the
key that gossip is encrypted with. "start --certs" takes a node's folder, the other commands' --certs a client's.

Whoever has ca.key can make nodes and clients: keep it off the nodes, by making their folders with --ca-dir. Running nodes
use changed files within seconds; copy them there and start nothing anew.`
	return cmd
}

// making gives a command the flags of all that make files.
func (r *run) making(cmd *cobra.Command, f *certFlags, days int) *cobra.Command {
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "certs", "certs", "folder for the files")
	flags.IntVar(&f.days, "days", days, "how long the certificate is good")
	flags.BoolVar(&f.force, "force", false, "overwrite files that are there")
	return r.withOutput(cmd)
}

func (r *run) certCreateCA() *cobra.Command {
	f := &certFlags{}
	cmd := &cobra.Command{
		Use:     "create-ca",
		Short:   "Make a cluster's authority: ca.crt, ca.key and gossip.keys",
		Example: r.example("cert create-ca", "cert create-ca --certs /etc/percolator/ca --days 3650"),
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return r.make(cmd, f, certs.CreateCA) },
	}
	return r.making(cmd, f, days(certs.CALifetime))
}

func (r *run) certCreateNode() *cobra.Command {
	f := &certFlags{}
	cmd := &cobra.Command{
		Use:   "create-node NAME",
		Short: "Make a node's certificate: node.crt and node.key",
		Example: r.example("cert create-node n1", "cert create-node n1 --host n1.example.org --host 10.0.0.1 --ca-dir ca --certs n1",
			"cert create-node n1 --host 10.0.0.1 --force"),
		Args: argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.name = args[0]
			return r.make(cmd, f, certs.CreateNode)
		},
	}
	cmd.Flags().StringSliceVar(&f.hosts, "host", []string{"localhost", "127.0.0.1", "::1"}, "names and addresses that clients reach the node by")
	return r.signed(r.making(cmd, f, days(certs.LeafLifetime)), f)
}

func (r *run) certCreateClient() *cobra.Command {
	f := &certFlags{}
	cmd := &cobra.Command{
		Use:     "create-client NAME",
		Short:   "Make a client's certificate: client.crt and client.key",
		Example: r.example("cert create-client ann", "cert create-client ann --ca-dir ca --certs ann"),
		Args:    argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.name = args[0]
			return r.make(cmd, f, certs.CreateClient)
		},
	}
	return r.signed(r.making(cmd, f, days(certs.LeafLifetime)), f)
}

// signed gives a command the flag of those that need the authority.
func (r *run) signed(cmd *cobra.Command, f *certFlags) *cobra.Command {
	cmd.Flags().StringVar(&f.ca, "ca-dir", "", "folder with ca.crt and ca.key (default: --certs); what else is needed of it is copied")
	return cmd
}

func days(d time.Duration) int { return int(d / (24 * time.Hour)) }

// make makes files and tells which.
func (r *run) make(cmd *cobra.Command, f *certFlags, create func(certs.Request) (certs.Created, error)) error {
	if f.days < 1 || f.days > 36500 {
		return usagef(cmd, "--days %d: give 1 to 36500", f.days)
	}
	created, err := create(f.request())
	if err != nil {
		return err
	}
	if r.output == outputJSON {
		return r.object(struct {
			Files    []string  `json:"files"`
			NotAfter time.Time `json:"not_after"`
		}{created.Files, created.NotAfter.UTC().Truncate(time.Second)})
	}
	return r.print("wrote %s; good until %s", strings.Join(created.Files, ", "), created.NotAfter.UTC().Format(time.DateOnly))
}

func (r *run) certShow() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show the certificates and gossip keys in a folder, and what is wrong with them",
		Example: r.example("cert show", "cert show --certs /etc/percolator/certs -o json"),
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			infos, err := certs.Show(dir, time.Now())
			if err != nil {
				return err
			}
			return r.certificates(infos)
		},
	}
	cmd.Flags().StringVar(&dir, "certs", "certs", "folder to look at")
	return r.withOutput(cmd)
}

// certificates prints a table, or an object a line. A file that can't be used fails the
// command, so that a script can watch over them.
func (r *run) certificates(infos []certs.Info) error {
	var g grid
	var bad []string
	g.add("FILE", "ROLE", "NAME", "GOOD UNTIL", "STATE", "HOSTS")
	for _, i := range infos {
		state := "good"
		if i.Warning != "" {
			state = strings.ToUpper(i.Warning)
		}
		if i.Problem != "" {
			state = i.Problem
			bad = append(bad, i.File+" "+i.Problem)
		}
		if r.output == outputJSON {
			err := r.object(struct {
				certs.Info
				NotBefore time.Time `json:"not_before,omitzero"`
				NotAfter  time.Time `json:"not_after,omitzero"`
			}{i, i.NotBefore.UTC(), i.NotAfter.UTC()})
			if err != nil {
				return err
			}
			continue
		}
		name, until := "-", "-"
		if i.Name != "" {
			name = printable(i.Name)
		}
		if !i.NotAfter.IsZero() {
			until = i.NotAfter.UTC().Format(time.DateOnly)
		}
		g.add(i.File, i.Role, name, until, state, strings.Join(i.Hosts, " "))
	}
	if r.output != outputJSON {
		if err := g.write(r.Stdout); err != nil {
			return err
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%w: %s", certs.ErrFiles, strings.Join(bad, ", "))
	}
	return nil
}

func (r *run) certGossipKey() *cobra.Command {
	var dir string
	var force bool
	cmd := &cobra.Command{
		Use:   "gossip-key add|use|drop",
		Short: "Replace the key that gossip is encrypted with, in three steps",
		Long: `Replace the key that gossip is encrypted with, while the cluster runs. After each step, copy gossip.keys to the folders of
all nodes, and wait ten seconds before the next, for nodes look at it every five:

  add   a new key is accepted beside the old one
  use   the new key encrypts, the old one is still accepted
  drop  the old one is accepted no longer

The key that encrypts stays always. To take a new key back that is not used yet: drop --force.`,
		Example: r.example("cert gossip-key add", "cert gossip-key use", "cert gossip-key drop --certs ca"),
		Args:    argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch step := certs.Step(args[0]); step {
			case certs.AddKey, certs.UseKey, certs.DropOld:
				n, err := certs.RotateGossipKey(dir, step, force)
				if errors.Is(err, certs.ErrNotUsed) {
					return &hintError{err: err, hint: fmt.Sprintf("`%s cert gossip-key use` first; drop --force takes the new key back", r.Name)}
				}
				if err != nil {
					return err
				}
				if r.output == outputJSON {
					return r.object(struct {
						Keys int `json:"keys"`
					}{n})
				}
				return r.print("gossip.keys holds %d now; copy it to all nodes before the next step", n)
			}
			return usagef(cmd, "%q is no step; they are add, use and drop", args[0])
		},
	}
	cmd.Flags().StringVar(&dir, "certs", "certs", "folder with gossip.keys")
	cmd.Flags().BoolVar(&force, "force", false, "drop also a key that was added and is not used yet")
	return r.withOutput(cmd)
}
