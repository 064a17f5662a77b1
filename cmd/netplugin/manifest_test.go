package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/serviceaccount"
)

// pod is as much of a manifest's pod as tests ask for.
type pod struct {
	Containers     []container
	InitContainers []container `yaml:"initContainers"`
	Volumes        []struct {
		Name     string
		HostPath struct{ Path string } `yaml:"hostPath"`

		Projected struct {
			Sources []struct {
				Token     struct{ Audience, Path string } `yaml:"serviceAccountToken"`
				ConfigMap struct {
					Name  string
					Items []struct{ Key, Path string }
				} `yaml:"configMap"`
			}
		}
	}
	Account string `yaml:"serviceAccountName"`
}

type mount struct {
	Name      string
	MountPath string `yaml:"mountPath"`
}

type container struct {
	Name                string
	Command             []string
	Args                []string
	Mounts              []mount `yaml:"volumeMounts"`
	Readiness, Liveness struct {
		HTTPGet struct {
			Host, Path, Scheme string

			Port int
		} `yaml:"httpGet"`
	}
}

// podOf is the pod of a manifest's DaemonSet.
func podOf(t *testing.T, manifest, name string) pod {
	t.Helper()
	f, err := os.Open("../../packaging/kubernetes/" + manifest)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := yaml.NewDecoder(f); ; {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct{ Template struct{ Spec pod } }
		}
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			t.Fatalf("%s has no DaemonSet %s", manifest, name)
		} else if err != nil {
			t.Fatal(err)
		}
		if o.Kind == "DaemonSet" && o.Metadata.Name == name {
			return o.Spec.Template.Spec
		}
	}
}

// TestNetpluginTakesTheManifestsFlags: netplugin takes the flags of the manifests' containers, and what they
// lead to is the node's.
func TestNetpluginTakesTheManifestsFlags(t *testing.T) {
	values := strings.NewReplacer("$(NODE_NAME)", "node1", "$(HOST_IP)", "127.0.0.1", "CONTROL_PLANE_ADDRESS", "10.0.0.1")
	onNode := func(p pod, c container, path string) string {
		for _, m := range c.Mounts {
			if m.MountPath == path {
				for _, v := range p.Volumes {
					if v.Name == m.Name {
						return v.HostPath.Path
					}
				}
			}
		}
		return "nothing"
	}
	options := func(c container) options {
		t.Helper()
		var o options
		fs := newFlags(&o)
		var args []string
		for _, a := range c.Args {
			args = append(args, values.Replace(a))
		}
		if err := fs.ParseAll(args, func(string) string { return "" }); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if err := o.checkOnce(fs); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		if o.uninstall || o.installCNI {
			return o
		}
		if err := errors.Join(o.joining.checkAccount(fs), o.identify(t.Context())); err != nil { // finish would ask netmaster
			t.Errorf("%s: %v", c.Name, err)
		}
		return o
	}
	agent := podOf(t, "contiv.yaml", "contiv-netplugin")
	install, run := agent.InitContainers[0], agent.Containers[0]
	if o := options(install); !o.installCNI || onNode(agent, install, o.cniBinDir) != cniBinDir || onNode(agent, install, o.cniConfDir) != cniConfDir {
		t.Errorf("%s installs into %s and %s", install.Name, onNode(agent, install, o.cniBinDir), onNode(agent, install, o.cniConfDir))
	}
	o := options(run)
	if o.hostName != "node1" || o.ctrl.String() != "127.0.0.1" || o.vtep != o.ctrl || o.driver != driverAuto || !slices.Equal(o.store.Etcd, []string{"https://10.0.0.1:9002"}) || !slices.Equal(o.joining.enrollmentServers, []string{"10.0.0.1:9005"}) {
		t.Errorf("%s: %+v", run.Name, o)
	}
	var token, authority string // where they are in the container
	for _, v := range agent.Volumes {
		i := slices.IndexFunc(run.Mounts, func(m mount) bool { return m.Name == v.Name })
		for _, s := range v.Projected.Sources {
			if s.Token.Audience == serviceaccount.Audience {
				token = filepath.Join(run.Mounts[i].MountPath, s.Token.Path)
			}
			if s.ConfigMap.Name == serviceaccount.BundleName && s.ConfigMap.Items[0].Key == serviceaccount.BundleKey {
				authority = filepath.Join(run.Mounts[i].MountPath, s.ConfigMap.Items[0].Path)
			}
		}
	}
	if token != o.joining.account.TokenFile || authority != o.joining.account.Authority || agent.Account != "contiv-netplugin" {
		t.Errorf("its token is at %q, netmaster's authority at %q, its account %q: %+v", token, authority, agent.Account, o.joining)
	}
	for _, path := range []string{o.stateDir, "/run/contiv", "/sys/fs/bpf", "/run/netns"} {
		if got := onNode(agent, run, path); got != path {
			t.Errorf("%s of %s is the node's %s", path, run.Name, got)
		}
	}
	if !strings.HasPrefix(o.cniSocket, "/run/contiv/") || !strings.HasPrefix(o.ebpfPinDir, "/sys/fs/bpf/") {
		t.Errorf("socket %s, pins %s are not the node's", o.cniSocket, o.ebpfPinDir)
	}
	off := podOf(t, "uninstall.yaml", "contiv-uninstall")
	first, then := options(off.InitContainers[0]), options(off.Containers[0])
	if !first.uninstall || first.stay || !then.uninstall || !then.stay || first.force || then.force {
		t.Errorf("uninstall has %+v, then %+v", first, then)
	}
	for _, c := range []container{off.InitContainers[0], off.Containers[0]} {
		if onNode(off, c, first.cniBinDir) != cniBinDir || onNode(off, c, first.cniConfDir) != cniConfDir || onNode(off, c, first.stateDir) != first.stateDir {
			t.Errorf("%s has other directories", c.Name)
		}
	}
}
