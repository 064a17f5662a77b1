package attach

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
)

// SourceProcess marks attachments of bare processes, which a person or a service manager
// attached. Their end is not reported, so netplugin checks whether their namespaces are
// still there.
const SourceProcess = "process"

// namedNetns is where `ip netns` has its namespaces.
const namedNetns = "/run/netns"

// PIDNetns is the path of a process's network namespace.
func PIDNetns(pid int) string { return fmt.Sprintf("/proc/%d/ns/net", pid) }

// PIDKey is the attachment of a process by its number.
func PIDKey(pid int, ifName string) Key { return Key{fmt.Sprintf("pid-%d", pid), ifName} }

// NetnsKey is the attachment of a namespace by its path, by whichever way a link leads
// there, and whether it is still there or not.
func NetnsKey(path, ifName string) Key {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	dir, base := filepath.Split(path)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	dir = filepath.Clean(dir)
	name := "netns-" + base
	if dir != namedNetns {
		sum := sha256.Sum256([]byte(dir))
		name += "-" + hex.EncodeToString(sum[:4])
	}
	return Key{name, ifName}
}
