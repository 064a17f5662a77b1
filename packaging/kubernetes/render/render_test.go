package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	helm "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

const chart = "../chart"

func address(a string) map[string]any {
	return map[string]any{"controlPlane": map[string]any{"address": a}}
}

// with adds a section's values to those of a cluster.
func with(section string, values map[string]any) map[string]any {
	v := address("10.0.0.1")
	v[section] = values
	if values == nil { // as of --set SECTION=null
		v[section] = nil
	}
	return v
}

// several is a control plane of three nodes.
func several() map[string]any {
	return map[string]any{"controlPlane": map[string]any{"addresses": []any{"10.0.0.1", "10.0.0.2", "10.0.0.3"}}}
}

// replicated adds a section's values to those of several.
func replicated(section string, values map[string]any) map[string]any {
	v := several()
	v[section] = values
	return v
}

// external has an etcd that asks for certificates.
func external(v map[string]any) map[string]any {
	v["store"] = map[string]any{"endpoints": []any{"https://a:1", "https://b:1"}, "tlsSecret": "mine"}
	return v
}

// plain is without TLS.
func plain(v map[string]any) map[string]any {
	v["secure"] = map[string]any{"enabled": false}
	return v
}

// private has its image in a registry that asks for a password.
func private(v map[string]any) map[string]any {
	v["image"] = map[string]any{"pullSecrets": []any{map[string]any{"name": "password"}}}
	return v
}

// TestPackageIsReadAsTheChart: Helm reads from the package of a release what it reads from the chart.
func TestPackageIsReadAsTheChart(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "contiv.tgz")
	pack := exec.CommandContext(t.Context(), "../../../tools/pack.sh", archive, "..", "--dereference", "--transform", "s,^chart,contiv,", "chart")
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want, err := loader.LoadDir(chart)
	if err != nil {
		t.Fatal(err)
	}
	got, err := loader.LoadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	files := func(c *helm.Chart) map[string]string {
		all := map[string]string{}
		for _, f := range c.Raw {
			all[f.Name] = string(f.Data)
		}
		return all
	}
	if !maps.Equal(files(want), files(got)) || got.Metadata.Version != want.Metadata.Version || len(got.CRDObjects()) == 0 {
		t.Errorf("Helm reads %v of %v", slices.Sorted(maps.Keys(files(got))), slices.Sorted(maps.Keys(files(want))))
	}
}

// TestManifestsMatchTheChart: the manifests are what the chart makes.
func TestManifestsMatchTheChart(t *testing.T) {
	for name, values := range manifests {
		want, err := manifest(chart, values)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Errorf("packaging/kubernetes/%s is not what the chart makes: go generate ./packaging/kubernetes", name)
		}
	}
}

// TestHelmLintsTheChart: `helm lint --strict` has nothing to say but that there is no icon.
func TestHelmLintsTheChart(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"manifest": manifests["contiv.yaml"], "uninstall": manifests["uninstall.yaml"], "cluster": address("10.0.0.1"),
		"services": with("services", map[string]any{"enabled": true}), "store": plain(with("store", map[string]any{"endpoints": []any{"http://10.0.0.5:2379"}})),
		"plain": plain(address("10.0.0.1")), "turned secure": with("secure", map[string]any{"acceptPlain": true}),
		"several": several(), "external": external(address("10.0.0.1")), "several, external": external(several()),
		"monitoring": with("monitoring", map[string]any{"enabled": true, "labels": map[string]any{"release": "p"}}),
		"ovs":        with("netplugin", map[string]any{"driver": "ovs", "args": []any{"--ip-forward"}}),
	} {
		result := lint.All(chart, values, "kube-system", true)
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev || !strings.Contains(m.Err.Error(), "icon is recommended") {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// object is as much of a rendered one as tests ask for.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Annotations     map[string]string
		Labels          map[string]string
	}
	Spec struct {
		Replicas       int
		ClusterIP      string
		Selector       map[string]any
		UpdateStrategy struct {
			Type          string
			RollingUpdate struct{ MaxUnavailable int }
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				InitContainers, Containers []struct {
					Name, Image string
					Args        []string
					Ports       []struct {
						Name          string
						ContainerPort int
					}
					Env []struct{ Name, Value string }

					StartupProbe, LivenessProbe, ReadinessProbe struct {
						HTTPGet struct{ Path, Scheme string }
					}
				}
				Volumes []struct {
					Name      string
					Secret    struct{ SecretName string }
					Projected struct {
						Sources []struct {
							ServiceAccountToken struct{ Audience, Path string }
							ConfigMap           struct{ Name string }
						}
					}
				}
				ServiceAccountName string
				ImagePullSecrets   []struct{ Name string }
			}
		}
	}
}

// rendered is the chart's objects by kind and name.
func rendered(t *testing.T, values map[string]any) map[string]object {
	t.Helper()
	files, err := render(chart, values)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]object{}
	for _, text := range files {
		for _, doc := range strings.Split(text, "\n---") {
			var o object
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatalf("%v: %s", err, doc)
			}
			if o.Kind != "" {
				all[o.Kind+"/"+o.Metadata.Name] = o
			}
		}
	}
	return all
}

// TestValuesTakeEffect: values have the effect that values.yaml says.
func TestValuesTakeEffect(t *testing.T) {
	flags := func(all map[string]object, name string) string {
		spec := all[name].Spec.Template.Spec
		var text strings.Builder
		for _, c := range append(spec.InitContainers, spec.Containers...) {
			fmt.Fprintf(&text, "%s %s %v %v %v %v %v\n", c.Name, c.Image, c.Args, c.Env, c.StartupProbe, c.LivenessProbe, c.ReadinessProbe)
		}
		fmt.Fprint(&text, spec.Volumes, all[name].Spec.Replicas, spec.ServiceAccountName, spec.ImagePullSecrets)
		return text.String()
	}
	const master, plugin = "Deployment/contiv-netmaster", "DaemonSet/contiv-netplugin"
	for _, tc := range []struct {
		values map[string]any
		object string
		has    []string
		lacks  string
	}{
		{address("10.0.0.1"), master, []string{
			"--etcd-listen=10.0.0.1:9002", "--secure", "--join-listen=10.0.0.1:9005", "--peer-listen=127.0.0.1:9004", "--enroll-service-account=kube-system/contiv-netplugin", "--kubeconfig=in-cluster",
			"{KUBERNETES_SERVICE_HOST 10.0.0.1}", "{KUBERNETES_SERVICE_PORT 6443}", "{NETMASTER https://$(HOST_IP):9999}", "{NETMASTER_TLS_DIR /var/lib/contiv/etcd/join/clients/issued/local-admin}", "{{/healthz HTTPS}} {{/readyz HTTPS}}",
		}, "token"},
		{address("10.0.0.1"), master, nil, "--etcd-endpoints"},
		{address("10.0.0.1"), master, nil, "--accept-plain"},
		{with("secure", map[string]any{"acceptPlain": true}), master, []string{"--secure --accept-plain"}, "{contiv-token}"},
		{plain(address("10.0.0.1")), master, []string{"--etcd-listen=10.0.0.1:9002", "--peer-listen=none", "--token-file=/etc/contiv/secret/token", "{NETMASTER http://$(HOST_IP):9999}", "{{/healthz HTTP}} {{/readyz HTTP}}", "{contiv-token}"}, "--secure"},
		{plain(address("10.0.0.1")), master, nil, "enroll"},
		{with("netmaster", map[string]any{"joinPort": 7}), master, []string{"--join-listen=10.0.0.1:7 "}, "9005"},
		{with("netmaster", map[string]any{"joinPort": 7}), plugin, []string{"--join=10.0.0.1:7 "}, "9005"},
		{with("netmaster", map[string]any{"port": 7}), plugin, []string{"--netmaster=https://10.0.0.1:7"}, ""},
		{with("netmaster", map[string]any{"dataDir": "/d"}), master, []string{"{NETMASTER_TLS_DIR /d/join/"}, "/var/lib"},
		{address("10.0.0.1"), plugin, []string{
			"--etcd-endpoints=https://10.0.0.1:9002", "--join=10.0.0.1:9005", "--join-token-file=/etc/contiv/join/token", "--join-authority=/etc/contiv/join/ca.crt", "--driver=auto", "--install-cni",
			"{contiv token}", "{contiv-authority}", "{{/livez HTTPS}} {{/livez HTTPS}} {{/readyz HTTPS}}", "contiv-netplugin",
		}, "openvswitch"},
		{address("10.0.0.1"), plugin, nil, "secret"},
		{plain(address("10.0.0.1")), plugin, []string{"--etcd-endpoints=http://10.0.0.1:9002", "--token-file=/etc/contiv/secret/token", "{contiv-token}", "{{/livez HTTP}} {{/livez HTTP}} {{/readyz HTTP}}"}, "join"},
		{plain(address("10.0.0.1")), plugin, nil, "contiv-netplugin"},
		{address("fd00::1"), plugin, []string{"--etcd-endpoints=https://[fd00::1]:9002", "--join=[fd00::1]:9005"}, ""},
		{with("apiServer", map[string]any{"host": "10.0.0.9", "port": 8443}), master, []string{"{KUBERNETES_SERVICE_HOST 10.0.0.9}", "{KUBERNETES_SERVICE_PORT 8443}", "--etcd-listen=10.0.0.1:9002"}, ""},
		{plain(with("store", map[string]any{"endpoints": []any{"http://a:1", "http://b:1"}})), master, []string{"--etcd-endpoints=http://a:1,http://b:1"}, "--etcd-listen"},
		{plain(map[string]any{"controlPlane": map[string]any{"address": "api.example"}, "store": map[string]any{"endpoints": []any{"http://a:1"}}}), master, []string{"{KUBERNETES_SERVICE_HOST api.example}"}, ""},
		{plain(with("store", map[string]any{"endpoints": []any{"http://a:1", "http://b:1"}})), plugin, []string{"--etcd-endpoints=http://a:1,http://b:1"}, "10.0.0.1"},
		{external(address("10.0.0.1")), master, []string{
			"--etcd-endpoints=https://a:1,https://b:1 --store-tls-dir=/etc/contiv/store --data-dir=/var/lib/contiv/etcd --secure --join-listen=10.0.0.1:9005 --enroll-service-account=kube-system/contiv-netplugin", "{mine}", "{{/healthz HTTPS}} {{/readyz HTTPS}}",
		}, "--peer-listen"},
		{external(address("10.0.0.1")), master, nil, "--etcd-listen"},
		{external(address("10.0.0.1")), plugin, []string{"--join=10.0.0.1:9005"}, "--etcd-endpoints"},
		{external(address("10.0.0.1")), plugin, nil, "{mine}"},
		{external(several()), "DaemonSet/contiv-netmaster", []string{"--store-tls-dir=/etc/contiv/store", "--join=10.0.0.1:9005,10.0.0.2:9005,10.0.0.3:9005", "--member-service-account=kube-system/contiv-netmaster", "{mine}"}, "--peer-listen"},
		{external(several()), plugin, []string{"--join=10.0.0.1:9005,10.0.0.2:9005,10.0.0.3:9005"}, "--etcd-endpoints"},
		{plain(with("token", map[string]any{"secret": "mine"})), plugin, []string{"{mine}"}, "contiv-token"},
		{plain(with("token", map[string]any{"secret": "mine"})), master, []string{"{mine}"}, "contiv-token"},
		{with("netplugin", map[string]any{"driver": "ovs", "args": []any{"--ip-forward"}}), plugin, []string{"--driver=ovs", "--ip-forward", "openvswitch"}, ""},
		{with("netmaster", map[string]any{"args": []any{"--pods-choose-tenant"}, "etcdPort": 12379}), master, []string{"--pods-choose-tenant", "--etcd-listen=10.0.0.1:12379"}, ""},
		{with("netmaster", map[string]any{"etcdPort": 12379}), plugin, []string{"https://10.0.0.1:12379"}, ""},
		{with("image", map[string]any{"repository": "r.example/c", "tag": "7"}), plugin, []string{"install-cni r.example/c:7", "netplugin r.example/c:7"}, "docker.io"},
		{private(address("10.0.0.1")), master, []string{"[{password}]"}, ""},
		{private(address("10.0.0.1")), plugin, []string{"[{password}]"}, ""},
		{private(map[string]any{"uninstall": map[string]any{"enabled": true, "force": true}}), "DaemonSet/contiv-uninstall", []string{"--uninstall", "--force", "--stay", "openvswitch", "[{password}]"}, "--token"},
	} {
		got := flags(rendered(t, tc.values), tc.object)
		for _, want := range tc.has {
			if !strings.Contains(got, want) {
				t.Errorf("%v: %s lacks %q:\n%s", tc.values, tc.object, want, got)
			}
		}
		if tc.lacks != "" && strings.Contains(got, tc.lacks) {
			t.Errorf("%v: %s has %q:\n%s", tc.values, tc.object, tc.lacks, got)
		}
	}
	three := rendered(t, several())
	for name, has := range map[string][]string{
		"DaemonSet/contiv-netmaster": {
			"--etcd-listen=$(HOST_IP):9002", "--peer-listen=$(HOST_IP):9004", "--join-listen=$(HOST_IP):9005", "--join=10.0.0.1:9005,10.0.0.2:9005,10.0.0.3:9005", "--secure",
			"--join-token-file=/etc/contiv/join/token", "--member-service-account=kube-system/contiv-netmaster", "--member-name=$(NODE_NAME)", "--enroll-service-account=kube-system/contiv-netplugin",
			"{KUBERNETES_SERVICE_HOST $(HOST_IP)}", "{contiv token}", "{{/healthz HTTPS}} {{/healthz HTTPS}} {{/readyz HTTPS}}",
		},
		plugin: {"--etcd-endpoints=https://10.0.0.1:9002,https://10.0.0.2:9002,https://10.0.0.3:9002", "--join=10.0.0.1:9005,10.0.0.2:9005,10.0.0.3:9005"},
	} {
		got := flags(three, name)
		for _, want := range has {
			if !strings.Contains(got, want) {
				t.Errorf("of three, %s lacks %q:\n%s", name, want, got)
			}
		}
	}
	if s := three["DaemonSet/contiv-netmaster"].Spec.UpdateStrategy; s.Type != "RollingUpdate" || s.RollingUpdate.MaxUnavailable != 1 {
		t.Errorf("netmasters are exchanged by %v", s)
	}
	if _, there := three[master]; there {
		t.Error("of three, there is a Deployment too")
	}
	if _, there := three["Lease/contiv-netmaster-founder"]; !there {
		t.Error("of three, no Lease elects the founder")
	}
	if got := three["ConfigMap/contiv-authority"].Metadata.Annotations; got["helm.sh/resource-policy"] != "keep" {
		t.Errorf("of three, the record has the annotations %v", got)
	}
	elsewhere, ports := several(), several()
	elsewhere["apiServer"] = map[string]any{"host": "10.0.0.9"}
	ports["netmaster"] = map[string]any{"port": 7}
	if got := flags(rendered(t, elsewhere), "DaemonSet/contiv-netmaster"); !strings.Contains(got, "{KUBERNETES_SERVICE_HOST 10.0.0.9}") {
		t.Errorf("of three, with a load balancer of the API server:\n%s", got)
	}
	if got := flags(rendered(t, ports), plugin); !strings.Contains(got, "--netmaster=https://10.0.0.1:7,https://10.0.0.2:7,https://10.0.0.3:7") {
		t.Errorf("of three, at another port:\n%s", got)
	}
	if all := rendered(t, manifests["uninstall.yaml"]); len(all) != 1 {
		t.Errorf("to uninstall there are %v", all)
	}
	replicas := plain(with("store", map[string]any{"endpoints": []any{"http://a:1"}}))
	replicas["netmaster"] = map[string]any{"replicas": 3}
	if got := rendered(t, replicas)[master].Spec.Replicas; got != 3 {
		t.Errorf("%d replicas", got)
	}
	// A release that was secure leaves a name in the pods' template that nothing takes out but another one.
	if got := rendered(t, plain(address("10.0.0.1")))[plugin].Spec.Template.Spec.ServiceAccountName; got != "default" {
		t.Errorf("plain pods are of the service account %q", got)
	}
	all := rendered(t, address("10.0.0.1"))
	if _, there := all["Lease/contiv-netmaster-founder"]; there {
		t.Error("one netmaster has a Lease")
	}
	for _, name := range []string{"ServiceAccount/contiv-netplugin", "ConfigMap/contiv-authority"} {
		if _, there := all[name]; !there {
			t.Errorf("%s is not made", name)
		}
		if _, there := rendered(t, plain(address("10.0.0.1")))[name]; there {
			t.Errorf("%s is made without secure.enabled", name)
		}
	}
	for name, o := range all {
		if !strings.HasPrefix(o.Kind, "ClusterRole") && !strings.HasPrefix(o.Kind, "ValidatingAdmissionPolicy") && o.Metadata.Namespace != "kube-system" {
			t.Errorf("%s is in %q", name, o.Metadata.Namespace)
		}
	}
}

// TestUnusableValuesAreRefused: values that cannot work say which and why.
func TestUnusableValuesAreRefused(t *testing.T) {
	for _, tc := range []struct {
		values map[string]any
		want   string
	}{
		{nil, "controlPlane.address must be the address of the node on which netmaster runs"},
		{address("http://10.0.0.1"), "controlPlane.address http://10.0.0.1: give the address alone"},
		{address("10.0.0.1:9999"), "give the address alone"},
		{address("master.example"), "takes an address of its node"},
		{with("netmaster", map[string]any{"replicas": 2}), "list their nodes in controlPlane.addresses"},
		{plain(with("netmaster", map[string]any{"replicas": 2})), "set store.endpoints"},
		{with("controlPlane", map[string]any{"addresses": []any{"10.0.0.1", "10.0.0.2"}}), "two netmasters stop writing"},
		{with("controlPlane", map[string]any{"address": "10.0.0.9", "addresses": several()["controlPlane"].(map[string]any)["addresses"]}), "lacks controlPlane.address 10.0.0.9"},
		{with("controlPlane", map[string]any{"addresses": []any{"10.0.0.1", "10.0.0.2", "10.0.0.2"}}), "addresses"},
		{with("controlPlane", map[string]any{"addresses": []any{"a", "b", "c"}}), "addresses"},
		{plain(several()), "needs secure.enabled"},
		{replicated("secure", map[string]any{"acceptPlain": true}), "without secure.acceptPlain"},
		{with("store", map[string]any{"endpoints": []any{"http://a:1"}}), "--set secure.enabled=false"},
		{plain(with("store", map[string]any{"endpoints": []any{"https://a:1"}, "tlsSecret": "x"})), "store.tlsSecret: is for"},
		{with("store", map[string]any{"tlsSecret": "x"}), "store.tlsSecret: is for"},
		{map[string]any{"controlPlane": map[string]any{"address": "api.example"}, "store": map[string]any{"endpoints": []any{"https://a:1"}}}, "takes an address of its node"},
		{map[string]any{"controlPlane": map[string]any{"address": "10.0.0.1"}, "store": map[string]any{"endpoints": []any{"https://a:1"}}, "netmaster": map[string]any{"replicas": 2}}, "list their nodes in controlPlane.addresses"},
		{map[string]any{"controlPlane": map[string]any{"address": "10.0.0.1"}, "store": map[string]any{"endpoints": []any{"https://a:1"}}, "secure": map[string]any{"acceptPlain": true}}, "secure.acceptPlain: is for netmaster's own etcd"},
		{with("secure", map[string]any{"enabled": false, "acceptPlain": true}), "secure.acceptPlain"},
		{with("secure", map[string]any{"enable": true}), "at '/secure': additional properties 'enable' not allowed"},
		{with("netmaster", map[string]any{"joinPort": 0}), "joinPort"},
		{with("netmaster", map[string]any{"replicas": 0}), "replicas"},
		{with("netmaster", map[string]any{"port": 70000}), "port"},
		{with("netmaster", map[string]any{"args": []any{"pods-choose-tenant"}}), "args"},
		{with("netplugin", map[string]any{"drivr": "ovs"}), "drivr"},
		{with("netplugin", map[string]any{"driver": "both"}), "driver"},
		{with("netplugin", map[string]any{"cniBinDir": "opt"}), "cniBinDir"},
		{with("store", map[string]any{"endpoints": []any{"10.0.0.5:2379"}}), "endpoints"},
		{with("token", map[string]any{"secret": ""}), "secret"},
		{with("services", map[string]any{"enabled": "yes"}), "at '/services/enabled': got string, want boolean"},
		{with("secure", nil), "missing property 'secure'"},
		{map[string]any{"controlPlane": "10.0.0.1"}, "at '/controlPlane': got string, want object"},
		{with("netmaster", map[string]any{"resources": map[string]any{"request": map[string]any{}}}), "at '/netmaster/resources': additional properties 'request' not allowed"},
		{with("netmaster", map[string]any{"port": "9999"}), "at '/netmaster/port': got string, want integer"},
		{with("monitoring", map[string]any{"labels": map[string]any{"a": true}}), "at '/monitoring/labels/a': got boolean, want string"},
		{plain(with("monitoring", map[string]any{"enabled": true})), "monitoring.enabled: needs secure.enabled"},
		{map[string]any{"controlPlane": map[string]any{"address": "10.0.0.1"}, "monitoring": map[string]any{"enabled": true}, "netplugin": map[string]any{"args": []any{"--rest-address=10.0.0.2:9006"}}}, "leave that flag out of netplugin.args"},
		{with("services", map[string]any{"enabled": false}), "NetworkPolicies see the node's address"},
		{with("tokens", map[string]any{}), "tokens"},
	} {
		if _, err := render(chart, tc.values); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.values, err, tc.want)
		}
	}
}
