package check

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const chartDir = "../helm/percolator"

// allParts are values that render every object of the chart.
var allParts = map[string]any{
	"networkPolicy": map[string]any{"http": []any{map[string]any{
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{"name": "monitoring"}},
	}}},
	"gateway":    map[string]any{"enabled": true, "origins": []any{"https://app.example"}},
	"monitoring": map[string]any{"serviceMonitor": true, "prometheusRule": true},
	"workers": []any{map[string]any{
		"name": "parser", "image": "parser:7", "replicas": 0, "certs": "parser-certs",
		"args": []any{"--certs=/certs"}, "env": map[string]any{"LEVEL": "info"},
		"resources": map[string]any{"limits": map[string]any{"memory": "256Mi"}},
	}},
}

// objects are those of a rendered chart, by kind.
type objects struct {
	set      appsv1.StatefulSet
	worker   appsv1.Deployment
	budget   policyv1.PodDisruptionBudget
	policy   networkingv1.NetworkPolicy
	monitor  monitoringv1.ServiceMonitor
	rule     monitoringv1.PrometheusRule
	services map[string]corev1.Service
	kinds    []string
}

// render renders the chart as release "percolator" and decodes every object, refusing unknown
// fields.
func render(t *testing.T, values map[string]any) objects {
	t.Helper()
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{
		Name: "percolator", Namespace: "default", IsInstall: true,
	}, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		t.Fatal(err)
	}
	out := objects{services: map[string]corev1.Service{}}
	for name, text := range files {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, document := range strings.Split(text, "\n---\n") {
			var kind struct{ Kind string }
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if kind.Kind == "" {
				continue
			}
			out.kinds = append(out.kinds, kind.Kind)
			var service corev1.Service
			into := map[string]any{
				"StatefulSet": &out.set, "Deployment": &out.worker, "Service": &service,
				"PodDisruptionBudget": &out.budget, "NetworkPolicy": &out.policy,
				"ServiceMonitor": &out.monitor, "PrometheusRule": &out.rule,
			}[kind.Kind]
			if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
				t.Errorf("%s: %s: %v\n%s", name, kind.Kind, err, document)
			}
			if service.Name != "" {
				out.services[service.Name] = service
			}
		}
	}
	return out
}

func TestChartLints(t *testing.T) {
	for _, values := range []map[string]any{{}, allParts} {
		for _, m := range lint.RunAll(chartDir, values, "default").Messages {
			if m.Severity > support.InfoSev {
				t.Error(m)
			}
		}
	}
}

func TestChartRefuses(t *testing.T) {
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, values := range []map[string]any{
		{"nodes": 0}, {"nodes": "three"}, {"replicas": 5}, {"certs": ""},
		{"storage": map[string]any{"size": "20"}},
		{"workers": []any{map[string]any{"name": "Parser", "image": "parser:7"}}},
		{"workers": []any{map[string]any{"name": "parser"}}},
	} {
		_, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "percolator"}, nil)
		if err == nil {
			t.Errorf("values %v are accepted", values)
		}
	}
}

// TestChartStartsWhatKustomizeStarts compares the chart's pods with those of deploy/kubernetes.
func TestChartStartsWhatKustomizeStarts(t *testing.T) {
	base := kustomized(t)
	got := render(t, map[string]any{"image": map[string]any{"tag": "latest"}})
	want := base.set.Spec.Template.Spec
	pod := got.set.Spec.Template.Spec
	selector := got.set.Spec.Selector.MatchLabels
	if spread := pod.TopologySpreadConstraints[0].LabelSelector; !reflect.DeepEqual(
		spread.MatchLabels, selector) {
		t.Errorf("pods are spread by %v, selected by %v", spread.MatchLabels, selector)
	}
	pod.TopologySpreadConstraints[0].LabelSelector = want.TopologySpreadConstraints[0].LabelSelector
	pod.Containers[0].ImagePullPolicy = ""
	if !reflect.DeepEqual(pod, want) {
		t.Errorf("pods differ\nhelm      %+v\nkustomize %+v", pod, want)
	}
	for name, service := range base.services {
		if !reflect.DeepEqual(got.services[name].Spec.Ports, service.Spec.Ports) {
			t.Errorf("service %s: ports %v, want %v", name, got.services[name].Spec.Ports,
				service.Spec.Ports)
		}
	}
	for what, labels := range map[string]map[string]string{
		"budget": got.budget.Spec.Selector.MatchLabels, "policy": got.policy.Spec.PodSelector.MatchLabels,
		"clients' service": got.services["percolator"].Spec.Selector,
		"nodes' service":   got.services[got.set.Spec.ServiceName].Spec.Selector,
	} {
		if !reflect.DeepEqual(labels, selector) {
			t.Errorf("%s selects %v, want %v", what, labels, selector)
		}
	}
}

// TestChartKeepsProbesApart checks that clients reach the ports of clients and the gateway alone: a flood cannot delay
// probes on another port.
func TestChartKeepsProbesApart(t *testing.T) {
	got := render(t, allParts)
	for _, rule := range got.policy.Spec.Ingress {
		var ports []string
		for _, p := range rule.Ports {
			ports = append(ports, p.Port.String())
		}
		if len(rule.From) == 0 && !slices.Equal(ports, []string{"clients", "gateway"}) {
			t.Errorf("everybody reaches %v", ports)
		}
		if slices.Contains(ports, "http") &&
			(len(ports) > 1 || rule.From[0].NamespaceSelector == nil) {
			t.Errorf("%v reach %v", rule.From, ports)
		}
	}
	probe := got.set.Spec.Template.Spec.Containers[0].LivenessProbe.HTTPGet
	if probe.Port.String() != "http" {
		t.Errorf("probes use port %s", probe.Port.String())
	}
}

func TestChartParts(t *testing.T) {
	got := render(t, allParts)
	slices.Sort(got.kinds)
	if want := []string{"Deployment", "NetworkPolicy", "PodDisruptionBudget", "PrometheusRule",
		"Service", "Service", "ServiceMonitor", "StatefulSet"}; !slices.Equal(got.kinds, want) {
		t.Errorf("kinds %v, want %v", got.kinds, want)
	}
	if len(render(t, nil).kinds) != 5 {
		t.Error("monitoring or workers are rendered without values")
	}
	// The alerts are those of deploy/prometheus, and select the series of the monitor's job.
	text, err := os.ReadFile("../prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var alerts monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(text, &alerts); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.rule.Spec, alerts) || len(alerts.Groups) == 0 {
		t.Error("the rule differs from alerts.yml")
	}
	job := got.services["percolator-nodes"].Labels[got.monitor.Spec.JobLabel]
	if job != "percolator" {
		t.Errorf("the job is %q; the alerts select job percolator", job)
	}
	container := got.set.Spec.Template.Spec.Containers[0]
	for _, arg := range []string{"--gateway=:7804", "--gateway-origin=https://app.example"} {
		if !slices.Contains(container.Args, arg) {
			t.Errorf("arguments %v lack %s", container.Args, arg)
		}
	}
	if w := got.worker.Spec; *w.Replicas != 0 ||
		!reflect.DeepEqual(w.Selector.MatchLabels, w.Template.Labels) ||
		reflect.DeepEqual(w.Template.Labels, got.set.Spec.Template.Labels) ||
		w.Template.Spec.Containers[0].Env[0].Value != "percolator:7800" {
		t.Errorf("worker: %+v", w)
	}
}
