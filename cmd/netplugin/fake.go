package main

import (
	"context"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
)

const driverFake = "fake"

// fakePlane is the reference data plane; nothing sends it packets here.
var fakePlane = dataPlane{
	name: driverFake, about: "forwards nothing; for tests of the control plane",
	open: func(context.Context, options, *slog.Logger) (driver.Driver, error) {
		d := reference.New()
		d.Interfaces(interfaceExists)
		return d, nil
	},
}

// interfaceExists asks the kernel for one interface by its name, where
// net.InterfaceByName lists them all.
func interfaceExists(name string) bool {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return false // not a name
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(s) }() // nothing was written
	return unix.IoctlIfreq(s, unix.SIOCGIFINDEX, ifr) == nil
}
