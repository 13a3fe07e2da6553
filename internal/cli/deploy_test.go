package cli

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/percolator-go/percolator/internal/cli/shell"
)

// The files in deploy/ start nodes. Here they start a fake node, so that a renamed flag or setting
// is noticed.

const deploy = "../../deploy"

func TestServiceManagerIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	next := func() string {
		buf := make([]byte, 1024)
		n, err := manager.Read(buf)
		if err != nil {
			t.Error(err)
		}
		return string(buf[:n])
	}
	ready := ""
	code, _, stderr := startApp(t, &fakeNode{}, nil, []func(){func() { ready = next() }},
		"--dir", t.TempDir(), "--insecure")
	if code != shell.ExitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if !strings.HasPrefix(ready, "READY=1\n") {
		t.Errorf("once it served: %q", ready)
	}
	if stopping := next(); !strings.HasPrefix(stopping, "STOPPING=1\n") {
		t.Errorf("once it was told to stop: %q", stopping)
	}
}

func TestDeployedCommandLines(t *testing.T) {
	unit := read(t, "systemd/percolator.service")
	exec := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/percolator start --config (\S+)$`)
	if exec.FindString(unit) == "" {
		t.Error("the unit's ExecStart is not what the test expects")
	}
	lines := map[string][]string{
		"systemd": {"--config", deploy + "/systemd/percolator.yaml"},
		"image":   imageArguments(t),
	}
	var compose struct {
		Services map[string]struct{ Command []string }
	}
	parse(t, "docker/compose.yaml", &compose)
	for name, service := range compose.Services {
		lines["compose "+name] = service.Command[1:]
	}
	var set struct {
		Spec struct {
			Replicas int
			Template struct {
				Spec struct {
					Containers []struct{ Args []string }
				}
			}
		}
	}
	parse(t, "kubernetes/statefulset.yaml", &set)
	args := slices.Clone(set.Spec.Template.Spec.Containers[0].Args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(POD_NAME)", "percolator-0")
	}
	lines["statefulset"] = args[1:]
	if len(lines) != 6 {
		t.Errorf("%d command lines, want 6", len(lines))
	}
	for name, args := range lines {
		t.Run(name, func(t *testing.T) {
			code, cfg, stderr := startApp(t, &fakeNode{}, nil, []func(){func() {}}, args...)
			if code != shell.ExitDone {
				t.Fatalf("start %q: exit code %d: %s", args, code, stderr)
			}
			if cfg.Certs == "" || cfg.Insecure || cfg.Dir == "" {
				t.Errorf("certificates %q, insecure %v, directory %q", cfg.Certs, cfg.Insecure, cfg.Dir)
			}
			if name != "image" && (cfg.Expect != 3 || len(cfg.Join) != 3) {
				t.Errorf("expects %d nodes, joins %q: want three", cfg.Expect, cfg.Join)
			}
		})
	}
}

// imageArguments returns the arguments with which the image starts a node.
func imageArguments(t *testing.T) []string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindStringSubmatch(read(t, "docker/Dockerfile"))
	if m == nil {
		t.Fatal("the Dockerfile has no CMD")
	}
	var args []string
	if err := yaml.Unmarshal([]byte(m[1]), &args); err != nil {
		t.Fatal(err)
	}
	return args[1:]
}

func parse(t *testing.T, file string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, file)), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
