package nodecmd

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
)

// The commands for certificates create and read files. They connect to no node.

// CertCommand groups the commands for certificates.
func CertCommand(d *shell.Deps) *cobra.Command {
	cmd := shell.Group("cert", "Make the certificates of a cluster",
		"cert create-ca\n"+
			"cert create-node n1 --host 10.0.0.1\n"+
			"cert create-client ann --role operator",
		certCreateCA(d), certCreateNode(d), certCreateClient(d), certRevoke(d), certShow(d),
		certGossipKey(d))
	cmd.Long = `Create a cluster's credentials: a certificate authority, the certificates of nodes and clients that it signs, and the
key that encrypts gossip. "start --certs" takes a node's folder, the other commands' --certs a client's.

ca.key allows its holder to create nodes and clients: keep it off the nodes by creating their folders with --ca-dir.
Running nodes load changed files within seconds, without a restart.`
	return cmd
}

func certCreateCA(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create-ca",
		Short: "Create a cluster's certificate authority: ca.crt, ca.key and gossip.keys",
		Example: "cert create-ca\n" +
			"cert create-ca --certs /etc/percolator/ca --days 3650",
	}
	return creating(d, cmd, &certs.Request{}, certs.CALifetime, certs.CreateCA)
}

func certCreateNode(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create-node NAME",
		Short: "Create a node's certificate: node.crt and node.key",
		Example: "cert create-node n1\n" +
			"cert create-node n1 --host n1.example.org --host 10.0.0.1 --ca-dir ca --certs n1\n" +
			"cert create-node n1 --host 10.0.0.1 --force",
	}
	req := &certs.Request{}
	cmd.Flags().StringSliceVar(&req.Hosts, "host", []string{"localhost", "127.0.0.1", "::1"},
		"host names and addresses of the node")
	addCADir(cmd, req)
	return creating(d, cmd, req, certs.LeafLifetime, certs.CreateNode)
}

func certCreateClient(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create-client NAME",
		Short: "Create a client's certificate: client.crt and client.key",
		Long: `Create a client's certificate. Its role determines the holder's permissions; it is part of the certificate
and cannot be changed without the authority's key. Each role includes those before it:

  reader    read all tables, and see the state of the cluster
  writer    run transactions that change users' tables
  observer  start and cancel back-fills of observers
  operator  create, drop, split and restore tables; steer observers, nodes, tablets, policy`,
		Example: "cert create-client shop\n" +
			"cert create-client ann --role operator --ca-dir ca --certs ann",
	}
	req := &certs.Request{}
	cmd.Flags().StringVar((*string)(&req.Role), "role", string(certs.Writer),
		"role of the client: reader, writer, observer or operator")
	addCADir(cmd, req)
	return creating(d, cmd, req, certs.LeafLifetime, certs.CreateClient)
}

// addCADir adds the flag of the commands that need the authority.
func addCADir(cmd *cobra.Command, req *certs.Request) {
	cmd.Flags().StringVar(&req.CA, "ca-dir", "",
		"folder with ca.crt and ca.key (default: --certs); other required files are copied from it")
}

// creating completes a command that creates files and prints their names. Its argument, if any, is
// NAME.
func creating(d *shell.Deps, cmd *cobra.Command, req *certs.Request, lifetime time.Duration,
	create func(certs.Request) (certs.Created, error),
) *cobra.Command {
	const day = 24 * time.Hour
	flags := cmd.Flags()
	flags.StringVar(&req.Dir, "certs", "certs", "folder for the files")
	flags.BoolVar(&req.Force, "force", false, "overwrite existing files")
	days := flags.Int("days", int(lifetime/day), "validity in days")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *days < 1 || *days > 36500 {
			return shell.Usagef(cmd, "--days %d: give 1 to 36500", *days)
		}
		req.Name, req.Lifetime = strings.Join(args, ""), time.Duration(*days)*day
		created, err := create(*req)
		if err != nil {
			return err
		}
		return d.Out.Answer(struct {
			Files    []string  `json:"files"`
			NotAfter time.Time `json:"not_after"`
		}{created.Files, created.NotAfter.UTC().Truncate(time.Second)}, "wrote %s; valid until %s",
			strings.Join(created.Files, ", "), created.NotAfter.UTC().Format(time.DateOnly))
	}
	return d.WithOutput(cmd)
}

func certShow(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show the certificates and gossip keys in a folder, and their problems",
		Example: "cert show\ncert show --certs /etc/percolator/certs -o json",
	}
	dir := cmd.Flags().String("certs", "certs", "folder to read")
	cmd.RunE = func(*cobra.Command, []string) error {
		infos, err := certs.Show(*dir, time.Now())
		if err != nil {
			return err
		}
		return showCertificates(d.Out, infos)
	}
	return d.WithOutput(cmd)
}

// showCertificates prints a table, or an object per line. An unusable file fails the command, so that
// scripts can monitor the files.
func showCertificates(out *shell.Printer, infos []certs.Info) error {
	var bad []string
	list := out.Listing("FILE, ROLE, NAME, VALID UNTIL, STATE, HOSTS")
	for _, i := range infos {
		state := "valid"
		if i.Warning != "" {
			state = strings.ToUpper(i.Warning)
		}
		if i.Problem != "" {
			state = i.Problem
			bad = append(bad, i.File+" "+i.Problem)
		}
		list.Add(struct {
			certs.Info
			NotBefore time.Time `json:"not_before,omitzero"`
			NotAfter  time.Time `json:"not_after,omitzero"`
		}{i, i.NotBefore.UTC(), i.NotAfter.UTC()}, i.File, i.Role,
			shell.OrDash(i.Name != "", inspect.Printable(i.Name)),
			shell.OrDash(!i.NotAfter.IsZero(), i.NotAfter.UTC().Format(time.DateOnly)), state,
			strings.Join(i.Hosts, " "))
	}
	if err := list.End(); err != nil {
		return err
	}
	if len(bad) > 0 {
		return coded.Errorf("", "%w: %s", certs.ErrFiles, strings.Join(bad, ", "))
	}
	return nil
}

func certRevoke(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke CERTIFICATE...",
		Short: "Revoke certificates: ca.crl",
		Long: `Revoke certificates of nodes or clients before they expire. Each is named by its file, or by its serial
number ("cert show -o json"). The authority signs the list of revoked certificates, ca.crl: copy
it to the folders of all nodes, next to ca.crt. Nodes reread it within a second of the next connection or call.`,
		Example: "cert revoke ann/client.crt\n" +
			"cert revoke 5f1c09a7d3 --certs ca",
		Args: cobra.MinimumNArgs(1),
	}
	dir := cmd.Flags().String("certs", "certs", "folder with ca.crt and ca.key")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		n, err := certs.Revoke(*dir, args, time.Now())
		if err != nil {
			return err
		}
		return d.Out.Answer(struct {
			Revoked int `json:"revoked"`
		}{n}, "%s now lists %d certificates; copy it to all nodes", certs.RevokedList, n)
	}
	return d.WithOutput(cmd)
}

func certGossipKey(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gossip-key add|use|drop",
		Short: "Rotate the gossip key in three steps",
		Long: `Rotate the key that encrypts gossip, while the cluster runs. After each step, copy gossip.keys to the folders of
all nodes, and wait ten seconds before the next: nodes reread it every five seconds:

  add   accept a new key in addition to the old one
  use   encrypt with the new key, still accept the old one
  drop  no longer accept the old one

The active key cannot be dropped. drop --force removes an added key that is not in use yet.`,
		Example: "cert gossip-key add\n" +
			"cert gossip-key use\n" +
			"cert gossip-key drop --certs ca",
	}
	dir := cmd.Flags().String("certs", "certs", "folder with gossip.keys")
	force := cmd.Flags().Bool("force", false, "also drop an added key that is not in use yet")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		step := certs.Step(args[0])
		if step != certs.AddKey && step != certs.UseKey && step != certs.DropOld {
			return shell.Usagef(cmd, "%q is not a step of the gossip key's rotation: use add, use or drop", args[0])
		}
		n, err := certs.RotateGossipKey(*dir, step, *force)
		if errors.Is(err, certs.ErrNotUsed) {
			return shell.WithHint(err,
				"`cert gossip-key use` first; drop --force removes the new key")
		}
		if err != nil {
			return err
		}
		return d.Out.Answer(struct {
			Keys int `json:"keys"`
		}{n}, "gossip.keys now contains %d keys; copy it to all nodes before the next step", n)
	}
	return d.WithOutput(cmd)
}
