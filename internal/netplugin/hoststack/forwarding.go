package hoststack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// forwarding is the kernel's switch for forwarding packets of one family.
type forwarding struct {
	sysctl string
	reach  string // what containers reach without it
	hint   string
}

var (
	forward4 = forwarding{sysctl: "net.ipv4.ip_forward", reach: "containers reach this host, but nothing beyond it, and published ports only from here"}
	forward6 = forwarding{
		sysctl: "net.ipv6.conf.all.forwarding", reach: "by IPv6 containers reach this host, but nothing beyond it, and published ports only from here",
		hint: ", which keeps router advertisements accepted (accept_ra=2) on interfaces that accept them now, since forwarding would end that",
	}
)

func (f forwarding) path() string { return strings.ReplaceAll(f.sysctl, ".", "/") }

// ensureForwarding looks at whether the kernel forwards, without which containers
// reach this host only.
func (s *Stack) ensureForwarding(f forwarding) error {
	data, err := os.ReadFile("/proc/sys/" + f.path())
	if err != nil {
		return fmt.Errorf("read %s: %w", f.sysctl, err)
	}
	if strings.TrimSpace(string(data)) != "0" {
		return nil
	}
	if !s.forward {
		return model.Errorf(model.ErrUnavailable, "%s: %s is 0; set it ('sysctl -w %s=1'), or start netplugin with --ip-forward%s", f.reach, f.sysctl, f.sysctl, f.hint)
	}
	if f == forward6 {
		if err := s.keepAdvertisements(); err != nil {
			return err
		}
	}
	s.log.Info("switching on IP forwarding, as --ip-forward asks", "sysctl", f.sysctl+"=1")
	return writeSysctl(f.path(), "1")
}

// keepAdvertisements has every interface that takes addresses and routes from
// routers' advertisements take them also when the host forwards.
func (s *Stack) keepAdvertisements() error {
	const dir = "/proc/sys/"
	paths, err := filepath.Glob(dir + "net/ipv6/conf/*/accept_ra")
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		data, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(data)) != "1" || name == "all" || name == "default" || name == "lo" { // an interface that has gone
			continue
		}
		s.log.Info("router advertisements stay accepted with forwarding", "sysctl", "net.ipv6.conf."+name+".accept_ra=2")
		if err := writeSysctl(strings.TrimPrefix(path, dir), "2"); err != nil {
			return err
		}
	}
	return nil
}
