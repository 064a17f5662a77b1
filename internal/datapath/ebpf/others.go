package ebpf

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Programs of another pin directory, left by a netplugin that was started with another
// --ebpf-pin-dir, see a frame before ours do, and judge it by stale tables. They are not
// detached: their netplugin may be running.

// ownProgramIDs returns the identifiers of the programs of this process.
func (a *attacher) ownProgramIDs(o *objects) ([]ebpf.ProgramID, error) {
	var ids []ebpf.ProgramID
	for _, prog := range []*ebpf.Program{o.FromContainer, o.FromTunnel, o.FromUnderlay, o.FromUplink, o.FromHost, o.ToContainer} {
		id, err := a.id(prog)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// programNames are those of the kernel's, of at most 15 bytes.
var programNames = []string{"from_container", "from_tunnel", "from_underlay", uplinkProgram, "from_host", "to_container"}

// refuseOtherPrograms fails when an interface has a program of a pin directory that is not
// this driver's. Filters under clsact need no look: there is one place for them.
func refuseOtherPrograms(name string, index int, own []ebpf.ProgramID) error {
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		res, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: at})
		if err != nil { // no TCX, or the interface is gone
			return nil //nolint:nilerr // see above
		}
		for _, p := range res.Programs {
			if slices.Contains(own, p.ID) {
				continue
			}
			prog, err := ebpf.NewProgramFromID(p.ID)
			if err != nil {
				continue // it has just gone
			}
			info, err := prog.Info()
			if err := errors.Join(err, prog.Close()); err != nil {
				continue
			}
			if slices.Contains(programNames, info.Name) {
				return model.Errorf(model.ErrConflict, "interface %s has a program %s (%d) of another netplugin's --ebpf-pin-dir, which sees frames first: %s", name, info.Name, p.ID, otherDirRemedy)
			}
		}
	}
	return nil
}

const otherDirRemedy = "start netplugin with that directory again, or, when none that uses it runs, remove it (rm -r) and the devices contivVxlan0 and contivh0 (ip link del)"

// servedByOtherDir tells that the host's containers are served by what another pin
// directory holds: the tunnel's device is that directory's, which is there. Ports
// that this process has not served yet then keep its programs, with which they
// go on; ours know no tunnel.
func servedByOtherDir(tunnelErr error) error {
	var other otherDirError
	if !errors.As(tunnelErr, &other) {
		return nil
	}
	if _, err := os.Stat(other.dir); err != nil {
		return nil //nolint:nilerr // it was removed, as its problem advises
	}
	return tunnelErr
}

// otherDirError says that a device is another pin directory's.
type otherDirError struct {
	device, dir string
}

func (e otherDirError) Error() string {
	return fmt.Sprintf("interface %s belongs to a netplugin with --ebpf-pin-dir %s: %s", e.device, e.dir, otherDirRemedy)
}

// Unwrap makes it a conflict.
func (otherDirError) Unwrap() error { return model.ErrConflict }

// checkOthers tells, for each port and device, whether programs of another pin
// directory stand before ours.
func (p *ports) checkOthers() error {
	if p.att.way != attachTCX {
		return nil
	}
	own, err := p.att.ownProgramIDs(p.obj)
	if err != nil {
		return fmt.Errorf("ask for programs: %w", err)
	}
	clear(p.overlaid)
	for name, index := range p.indexes {
		if err := refuseOtherPrograms(name, index, own); err != nil {
			p.overlaid[name] = err
		}
	}
	for name, index := range p.devices.interfaces() {
		if name == "" || index == 0 {
			continue
		}
		if err := refuseOtherPrograms(name, index, own); err != nil {
			p.overlaid[""] = err
		}
	}
	return nil
}

// failUnserved marks programmed ports that cannot work as failed: a container must not
// start without a network silently.
func (p *ports) failUnserved(run *applyRun) {
	if err := p.overlaid[""]; err != nil {
		run.problem("programs", err)
	}
	for name, o := range run.want.Ports.All() {
		if run.rep.Ports.Err(name) != nil {
			continue
		}
		err := p.overlaid[name]
		if n := run.networks[o.Network]; err == nil && n != nil && n.Encap == model.EncapVXLAN && p.devices.settings.get().VXLAN == 0 {
			err = run.tunnelErr
		}
		if err != nil {
			run.rep.Ports.Set(name, driver.PortStatus{Err: err})
		}
	}
}
