package main

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// manifestObject is as much of a manifest's object as tests ask for.
type manifestObject struct {
	Kind     string
	Metadata struct{ Name string }
	Rules    []struct {
		Groups    []string `yaml:"apiGroups"`
		Resources []string
		Verbs     []string
	}
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct{ Args []string }
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

// TestManifest: netmaster takes the flags of the manifest, follows the API server as
// its pod's account, asks for a token, and has ports that kubeadm leaves free.
func TestManifest(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	values := strings.NewReplacer("$(HOST_IP)", "10.0.0.1", "CONTROL_PLANE_ADDRESS", "10.0.0.1", "/etc/contiv/secret/token", secret)
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
	if o.token == nil || o.kubeconfig != inCluster || len(o.etcd) != 0 || o.dataDir != "/var/lib/contiv/etcd" {
		t.Errorf("%v: %+v", args, o)
	}
	// API server, etcd and its peers and metrics, kubelet, scheduler, controllers, proxy.
	taken := []string{"6443", "2379", "2380", "2381", "10248", "10249", "10250", "10255", "10256", "10257", "10259"}
	var ports []string
	for _, at := range []string{o.external, o.internal, o.agent, o.etcdListen} {
		host, port, err := net.SplitHostPort(at)
		if err != nil || host != "10.0.0.1" || slices.Contains(taken, port) {
			t.Errorf("it serves at %s, %v", at, err)
		}
		ports = append(ports, port)
	}
	slices.Sort(ports)
	if got := slices.Compact(ports); len(got) != 3 {
		t.Errorf("ports %v: the API's, agents' and the store's", got)
	}
}
