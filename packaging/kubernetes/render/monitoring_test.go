package main

import (
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// TestMonitoringFindsEachProgram: with monitoring.enabled Prometheus finds netmaster and each netplugin, and asks
// them by TLS with the Secret's token, as docs/how-to/metrics.md says by hand; netplugin
// serves where it is asked. Without it there is nothing of it.
func TestMonitoringFindsEachProgram(t *testing.T) {
	values := with("monitoring", map[string]any{"enabled": true, "labels": map[string]any{"release": "p"}})
	files, err := render(chart, values)
	if err != nil {
		t.Fatal(err)
	}
	var service monitoringv1.ServiceMonitor
	var pod monitoringv1.PodMonitor
	for _, doc := range strings.Split(files["contiv/templates/monitoring.yaml"], "\n---\n") {
		for kind, into := range map[string]any{"kind: ServiceMonitor\n": &service, "kind: PodMonitor\n": &pod} {
			if strings.Contains(doc, kind) {
				if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
					t.Fatalf("%v:\n%s", err, doc)
				}
			}
		}
	}
	if len(service.Spec.Endpoints) != 1 || len(pod.Spec.PodMetricsEndpoints) != 1 {
		t.Fatalf("%+v\n%+v", service, pod)
	}
	if s, p := service.Spec.Endpoints[0].Port, pod.Spec.PodMetricsEndpoints[0].Port; s != "api" || p == nil || *p != "metrics" {
		t.Errorf("ports %q and %v", s, p)
	}
	all := rendered(t, values)
	plugin, master := all["DaemonSet/contiv-netplugin"].Spec.Template, all["Deployment/contiv-netmaster"].Spec.Template
	if port := plugin.Spec.Containers[0].Ports; len(port) != 1 || port[0].Name != "metrics" || port[0].ContainerPort != 9006 || !strings.Contains(strings.Join(plugin.Spec.Containers[0].Args, " "), "--rest-address=0.0.0.0:9006") {
		t.Errorf("netplugin's ports are %v, its flags %v", port, plugin.Spec.Containers[0].Args)
	}
	for component, tc := range map[string]struct {
		selects, labels, has map[string]string
		scheme               *monitoringv1.Scheme
		with                 *monitoringv1.SafeAuthorization
		tls                  *monitoringv1.SafeTLSConfig
		relabel              []monitoringv1.RelabelConfig
	}{
		"netmaster": {service.Spec.Selector.MatchLabels, service.Labels, all["Service/contiv-netmaster"].Metadata.Labels, service.Spec.Endpoints[0].Scheme, service.Spec.Endpoints[0].Authorization, &service.Spec.Endpoints[0].TLSConfig.SafeTLSConfig, service.Spec.Endpoints[0].RelabelConfigs},
		"netplugin": {pod.Spec.Selector.MatchLabels, pod.Labels, plugin.Metadata.Labels, pod.Spec.PodMetricsEndpoints[0].Scheme, pod.Spec.PodMetricsEndpoints[0].Authorization, pod.Spec.PodMetricsEndpoints[0].TLSConfig, pod.Spec.PodMetricsEndpoints[0].RelabelConfigs},
	} {
		for k, v := range tc.selects {
			if tc.has[k] != v {
				t.Errorf("%s: %v selects none of %v", component, tc.selects, tc.has)
			}
		}
		if len(tc.selects) != 2 || tc.labels["release"] != "p" {
			t.Errorf("%s: selects %v, has the labels %v", component, tc.selects, tc.labels)
		}
		if tc.scheme == nil || *tc.scheme != "https" || tc.with.Credentials.Name != "contiv-monitoring" || tc.with.Credentials.Key != "token" || tc.tls.CA.Secret.Name != "contiv-monitoring" || tc.tls.CA.Secret.Key != "ca.crt" || tc.tls.InsecureSkipVerify != nil {
			t.Errorf("%s: asks by %v, %+v, %+v", component, tc.scheme, tc.with, tc.tls)
		}
		if len(tc.relabel) != 2 || tc.relabel[0].TargetLabel != "instance" || tc.relabel[1].TargetLabel != "job" || *tc.relabel[1].Replacement != "contiv-"+component {
			t.Errorf("%s: relabels %+v", component, tc.relabel)
		}
	}
	if o := all["Service/contiv-netmaster"]; o.Spec.Selector["app.kubernetes.io/component"] != master.Metadata.Labels["app.kubernetes.io/component"] || o.Spec.ClusterIP != "None" {
		t.Errorf("the service of netmaster %+v", o.Spec)
	}
	for name := range rendered(t, address("10.0.0.1")) {
		if strings.Contains(name, "Monitor") || strings.HasPrefix(name, "Service/") {
			t.Errorf("%s without monitoring.enabled", name)
		}
	}
}
