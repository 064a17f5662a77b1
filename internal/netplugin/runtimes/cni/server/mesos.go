package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
)

// TypeMesos is the type of the plugin in configurations for Mesos, by which 1.x's
// plugin had its name: contivk8s under another one.
const TypeMesos = "netcontiv"

// The labels of a network (Mesos' NetworkInfo.labels) that say where a container
// belongs, as in 1.x.
const (
	LabelTenant  = "io.contiv.tenant"
	LabelNetwork = "io.contiv.network"
	LabelGroup   = "io.contiv.net-group"
)

// ourLabels begin every label that is meant for us.
const ourLabels = "io.contiv."

// MesosArgs is what Mesos' network/cni isolator adds to a network's configuration under
// "args" ("Mesos metadata to CNI plugins" in Mesos' documentation of CNI).
type MesosArgs struct {
	NetworkInfo struct {
		Labels struct {
			Labels []MesosLabel `json:"labels"`
		} `json:"labels"`
	} `json:"network_info"`
}

// MesosLabel is one of Mesos' labels.
type MesosLabel struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// apply has the labels say where the container belongs, over what the configuration
// says; the others become the endpoint's. A label of ours that is not known is refused,
// also in other letters or between spaces: misspelt, it would be a container without
// policy. One without a value says nothing, as in 1.x.
func (m *MesosArgs) apply(r *attach.Request) error {
	if m == nil {
		return nil
	}
	bad := func(format string, args ...any) error {
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid Mesos labels", fmt.Sprintf(format, args...))
	}
	seen := map[string]bool{}
	labels := map[string]string{}
	maps.Copy(labels, r.Labels)
	for _, l := range m.NetworkInfo.Labels.Labels {
		if seen[l.Key] {
			return bad("label %s is there twice", quote(l.Key))
		}
		seen[l.Key] = true
		switch l.Key {
		case LabelTenant:
			r.Tenant = cmp.Or(l.Value, r.Tenant)
		case LabelNetwork:
			r.Network = cmp.Or(l.Value, r.Network)
		case LabelGroup:
			r.Group = cmp.Or(l.Value, r.Group)
		default:
			if strings.HasPrefix(strings.ToLower(strings.TrimSpace(l.Key)), ourLabels) {
				return bad("unknown label %s; those of Contiv are %s, %s, %s", quote(l.Key), LabelTenant, LabelNetwork, LabelGroup)
			}
			labels[l.Key] = l.Value
		}
	}
	if len(labels) > 0 {
		r.Labels = labels
	}
	return nil
}

// maxMesosFile bounds the file below, in bytes.
const maxMesosFile = 1 << 20

// mesosArgs are Mesos' of an invocation: those of the configuration, else, for
// TypeMesos, those of the file in which Mesos keeps the configuration that it has
// made, beside the handle of the container's namespace, where 1.x read them; nil where
// neither has any.
func (c conf) mesosArgs(in cni.Invocation) (*MesosArgs, error) {
	if c.Args.Mesos != nil || c.Type != TypeMesos {
		return c.Args.Mesos, nil
	}
	bad := func(err error) error {
		return types.NewError(types.ErrInvalidNetworkConfig, "read the labels in Mesos' saved configuration", err.Error())
	}
	for _, dir := range slices.Compact([]string{c.Name, TypeMesos}) {
		if dir == "" || filepath.Base(dir) != dir || dir == ".." {
			continue // no directory of this name
		}
		path := filepath.Join(filepath.Dir(in.Netns), dir, "network.conf")
		st, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, bad(err)
		case !st.Mode().IsRegular() || st.Size() > maxMesosFile:
			return nil, bad(fmt.Errorf("%s is not a file of at most %d bytes", path, maxMesosFile))
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, bad(err)
		}
		var kept struct {
			Args struct {
				Mesos *MesosArgs `json:"org.apache.mesos"`
			} `json:"args"`
		}
		if err := json.Unmarshal(data, &kept); err != nil {
			return nil, bad(fmt.Errorf("%s: %w", path, err))
		}
		return kept.Args.Mesos, nil
	}
	return nil, nil
}
