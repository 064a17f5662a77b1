package main

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/serviceaccount"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
)

// manifestObject is as much of a manifest's object as tests ask for.
type manifestObject struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Rules    []struct {
		Groups    []string `yaml:"apiGroups"`
		Resources []string
		Verbs     []string
	}
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Args []string
					Env  []struct{ Name, Value string }
				}
			}
		}
	}
}

// manifestObjects are those of packaging/kubernetes/contiv.yaml.
func manifestObjects(t *testing.T) (all []manifestObject) {
	t.Helper()
	f, err := os.Open("../../packaging/kubernetes/contiv.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := yaml.NewDecoder(f); ; {
		var o manifestObject
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

// TestNetmasterTakesTheManifestsFlags: netmaster takes the flags of the manifest, follows the API server as
// its pod's account, serves nothing plainly, lets in the hosts of netplugin's account, has
// ports that kubeadm leaves free, and netctl in its pod has a certificate.
func TestNetmasterTakesTheManifestsFlags(t *testing.T) {
	values := strings.NewReplacer("$(HOST_IP)", "10.0.0.1", "CONTROL_PLANE_ADDRESS", "10.0.0.1")
	all := manifestObjects(t)
	i := slices.IndexFunc(all, func(o manifestObject) bool { return o.Kind == "Deployment" })
	var args []string
	for _, a := range all[i].Spec.Template.Spec.Containers[0].Args {
		args = append(args, values.Replace(a))
	}
	o, err := parse(t, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	if !o.secure || o.acceptPlain || o.plainStore != "" || o.enroll != "kube-system/contiv-netplugin" || o.kubeconfig != inCluster || len(o.store.Etcd) != 0 || o.dataDir != "/var/lib/contiv/etcd" {
		t.Errorf("%v: %+v", args, o)
	}
	env := map[string]string{}
	for _, e := range all[i].Spec.Template.Spec.Containers[0].Env {
		env[e.Name] = values.Replace(e.Value)
	}
	if env["NETMASTER"] != "https://"+o.internal || env["NETMASTER_TLS_DIR"] != membership.AdminDir(o.dataDir) {
		t.Errorf("netctl has %v", env)
	}
	namespace, name, err := serviceaccount.ParseName(o.enroll)
	if err != nil {
		t.Fatal(err)
	}
	for kind, of := range map[string]string{"ServiceAccount": name, "ConfigMap": serviceaccount.BundleName} {
		if !slices.ContainsFunc(all, func(x manifestObject) bool {
			return x.Kind == kind && x.Metadata.Name == of && x.Metadata.Namespace == namespace
		}) {
			t.Errorf("the manifest has no %s %s in %s", kind, of, namespace)
		}
	}
	// API server, etcd and its peers and metrics, kubelet, scheduler, controllers, proxy.
	taken := []string{"6443", "2379", "2380", "2381", "10248", "10249", "10250", "10255", "10256", "10257", "10259"}
	var ports []string
	for _, at := range o.listening() {
		host, port, err := net.SplitHostPort(at)
		if err != nil || host != "10.0.0.1" && at != o.joining.peerListen || at == o.joining.peerListen && !isLoopback(host) || slices.Contains(taken, port) {
			t.Errorf("it serves at %s, %v", at, err)
		}
		ports = append(ports, port)
	}
	slices.Sort(ports)
	if got := slices.Compact(ports); len(got) != 5 {
		t.Errorf("ports %v: the API's, agents', the store's, and those of members and of who joins", got)
	}
}
