// Package check reads the files of deploy/ with the libraries of the tools that will read them:
// kustomize, Helm and Kubernetes' own types, the library of docker compose, BuildKit's linter,
// systemd. It is a separate module, so that the product does not depend on them.
package check

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of deploy/kubernetes.
type manifests struct {
	set      appsv1.StatefulSet
	budget   policyv1.PodDisruptionBudget
	services map[string]corev1.Service
}

// kustomized decodes what kustomize makes of deploy/kubernetes, refusing unknown fields.
func kustomized(t *testing.T) manifests {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), "../kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	out := manifests{services: map[string]corev1.Service{}}
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var into any
		var service corev1.Service
		switch r.GetKind() {
		case "StatefulSet":
			into = &out.set
		case "PodDisruptionBudget":
			into = &out.budget
		case "Service":
			into = &service
		default:
			t.Errorf("a %s is not expected", r.GetKind())
			continue
		}
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Errorf("%s %s: %v", r.GetKind(), r.GetName(), err)
		}
		if service.Name != "" {
			out.services[service.Name] = service
		}
	}
	return out
}

func TestKubernetes(t *testing.T) {
	base := kustomized(t)
	set, budget, services := base.set, base.budget, base.services
	pod := set.Spec.Template
	for name, selector := range map[string]map[string]string{
		"statefulset": set.Spec.Selector.MatchLabels, "budget": budget.Spec.Selector.MatchLabels,
		"clients' service": services["percolator"].Spec.Selector,
		"nodes' service":   services[set.Spec.ServiceName].Spec.Selector,
		"spread":           pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		if len(selector) == 0 {
			t.Errorf("%s selects no pods", name)
		}
		for k, v := range selector {
			if pod.Labels[k] != v {
				t.Errorf("%s wants %s=%s; the pods have %q", name, k, v, pod.Labels[k])
			}
		}
	}
	if !services[set.Spec.ServiceName].Spec.PublishNotReadyAddresses {
		t.Error("nodes that are not ready yet cannot find each other")
	}
	if *pod.Spec.EnableServiceLinks {
		t.Error("PERCOLATOR_SERVICE_HOST would be mistaken for a setting")
	}
}

func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"../docker/compose.yaml"},
		cli.WithEnv([]string{"CERTS=/certs"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Services) != 3 {
		t.Errorf("%d services, want 3", len(project.Services))
	}
	for name, s := range project.Services {
		if !s.ReadOnly || len(s.CapDrop) == 0 || s.Build == nil {
			t.Errorf("%s: the shared part is not merged: %+v", name, s)
		}
	}
}

func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, at []parser.Range) {
		t.Errorf("%s: %s %v", rule, message, at)
	}})
	stages, _, err := instructions.Parse(file.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	if last := stages[len(stages)-1]; last.BaseName != "scratch" {
		t.Errorf("the image is built on %q", last.BaseName)
	}
	for _, w := range file.Warnings {
		t.Errorf("%s %s", w.Short, w.Detail)
	}
}

func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze here")
	}
	text, err := os.ReadFile("../systemd/percolator.service")
	if err != nil {
		t.Fatal(err)
	}
	// systemd-analyze requires that the program exists.
	unit := filepath.Join(t.TempDir(), "percolator.service")
	there := strings.ReplaceAll(string(text), "/usr/local/bin/percolator", "/bin/true")
	if err := os.WriteFile(unit, []byte(there), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", unit).CombinedOutput(); err != nil ||
		len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v %s", err, out)
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--threshold=20",
		unit).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}
