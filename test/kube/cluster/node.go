package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// containerdConfig is containerd's (version 2 of its form): images and files are in the
// node's own /var/lib and /run (node.sh). A test's process may not lower the score by
// which the kernel kills when memory is short, so nor may containers' processes.
const containerdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[1]q
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = %[2]q
    bin_dir = %[3]q
`

// MultusConf is the file of Multus' configuration, beside Contiv's.
const MultusConf = "00-multus.conf"

// PluginEnv tells contivk8s where a host's netplugin is, for configurations that all nodes
// share.
func PluginEnv(h *testcluster.Host) []string {
	return []string{"CONTIV_CNI_SOCKET=" + h.CNISocket(), "CONTIV_CNI_STATE_DIR=" + h.StateDir()}
}

// writeNode writes what a node's programs read into the host's directory.
func (n *Nodes) writeNode(h *testcluster.Host) error {
	type object = map[string]any
	file := func(name string) string { return filepath.Join(h.Dir, name) }
	cni, plugins := file("net.d"), file("plugins")
	seenCNI, seenPlugins := cni, plugins // by the node
	if n.cfg.Bare {
		seenCNI, seenPlugins = "/opt/cni/net.d", "/opt/cni/bin"
		cni, plugins = file("node"+seenCNI), file("node"+seenPlugins) // as node.sh mounts it
	}
	// containerd asks loopback for each pod.
	err := errors.Join(os.MkdirAll(cni, 0o755), os.MkdirAll(plugins, 0o755))
	for _, p := range []string{"/usr/lib/cni/loopback", filepath.Join(n.Lab.Config().BinDir, "contivk8s")} {
		if n.cfg.Bare && filepath.Base(p) == "contivk8s" {
			continue
		}
		err = errors.Join(err, os.Symlink(p, filepath.Join(plugins, filepath.Base(p))))
	}
	cert, key, e := n.Control.ca.serving(h.Name, h.Address.AsSlice(), Address6(h.Address).AsSlice())
	if err = errors.Join(err, e); err != nil {
		return err
	}
	if !n.cfg.Bare {
		capabilities := object{"portMappings": true, "bandwidth": true}
		contiv := object{
			"cniVersion": "1.0.0", "name": "contiv",
			"plugins": []object{{"type": "contivk8s", "socket": h.CNISocket(), "stateDir": h.StateDir(), "capabilities": capabilities}},
		}
		err = writeJSON(filepath.Join(cni, "10-contiv.conflist"), contiv)
		if n.cfg.Multus != "" { // as its installation makes it of the first file
			err = errors.Join(err, os.Symlink(n.cfg.Multus, filepath.Join(plugins, "multus")), writeJSON(filepath.Join(cni, MultusConf), object{
				"cniVersion": "1.0.0", "name": "multus-cni-network", "type": "multus", "capabilities": capabilities,
				"kubeconfig": n.Control.Kubeconfig, "delegates": []object{contiv},
			}))
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(
		write(file("kubelet.crt"), cert), write(file("kubelet.key"), key),
		write(file("containerd.toml"), fmt.Appendf(nil, containerdConfig, Pause, seenCNI, seenPlugins)),
		write(file("resolv.conf"), []byte("nameserver 10.96.0.10\n")),
		writeJSON(file("kubelet.json"), object{
			"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
			"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
			"authentication": object{
				"anonymous": object{"enabled": false}, "webhook": object{"enabled": false}, "x509": object{"clientCAFile": filepath.Join(n.Control.dir, "ca.crt")},
			},
			"tlsCertFile": file("kubelet.crt"), "tlsPrivateKeyFile": file("kubelet.key"),
			"authorization": object{"mode": "AlwaysAllow"}, // any client with a certificate of the cluster
			// The machine's control groups are of the first version, and the node has a part of them.
			"cgroupDriver": "cgroupfs", "cgroupRoot": filepath.Join("/contiv-kube", n.Lab.Config().Name, h.Name), "failCgroupV1": false,
			"enforceNodeAllocatable": []string{}, "cpuCFSQuota": false, "failSwapOn": false,
			"clusterDomain": "cluster.local", "clusterDNS": []string{"10.96.0.10"}, "resolvConf": file("resolv.conf"),
			"makeIPTablesUtilChains":      false,
			"imageGCHighThresholdPercent": 100, "evictionHard": object{"memory.available": "100Mi"},
			"serializeImagePulls": false, "maxPods": 250, "podPidsLimit": -1,
			"nodeStatusUpdateFrequency": "5s", "kubeAPIQPS": 200, "kubeAPIBurst": 400, "eventRecordQPS": 0,
		}),
	)
}
