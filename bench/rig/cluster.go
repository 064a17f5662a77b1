package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// Programs returns bin, or if it is empty a directory with the programs of the source
// tree, which it builds and remove removes.
func Programs(ctx context.Context, bin string) (dir string, remove func() error, err error) {
	if bin != "" {
		return bin, func() error { return nil }, nil
	}
	if dir, err = os.MkdirTemp("", "contiv-bench-"); err != nil {
		return "", nil, err
	}
	fmt.Fprintln(os.Stderr, "building the programs")
	if err := testcluster.Build(ctx, ".", dir); err != nil {
		_ = os.RemoveAll(dir) // the other error matters
		return "", nil, err
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// Netctl runs command lines of netctl.
func Netctl(ctx context.Context, l *testcluster.Lab, lines ...string) error {
	for _, line := range lines {
		if _, err := l.Masters.Netctl(ctx, strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// Stock is where Debian's containernetworking-plugins puts the stock plugins.
const Stock = "/usr/lib/cni"

// StockBridge configures the stock bridge plugin on a host, with host-local addresses of
// subnets, without what would cost it more: masquerading, ports.
func StockBridge(h *testcluster.Host, subnets ...string) (*libcni.NetworkConfigList, error) {
	if _, err := os.Stat(filepath.Join(Stock, "bridge")); err != nil {
		return nil, fmt.Errorf("the stock plugins are missing: apt-get install containernetworking-plugins: %w", err)
	}
	var ranges [][]map[string]string
	for _, s := range subnets {
		ranges = append(ranges, []map[string]string{{"subnet": s}})
	}
	conf, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "stock", "plugins": []any{map[string]any{
		"type": "bridge", "bridge": "stock0", "isGateway": true,
		"ipam": map[string]any{"type": "host-local", "dataDir": filepath.Join(h.Dir, "host-local"), "ranges": ranges},
	}}})
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromBytes(conf)
}
