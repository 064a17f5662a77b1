package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni/server"
)

// Where container runtimes look.
const (
	cniBinDir  = "/opt/cni/bin"
	cniConfDir = "/etc/cni/net.d"
)

// cniFlags are those about the files of the CNI plugin.
func cniFlags(fs *flags.Set, o *options) {
	fs.Bool(&o.installCNI, "install-cni", "install contivk8s, from netplugin's own directory, and a CNI configuration for container runtimes, and exit").From("")
	fs.String(&o.cniBinDir, "cni-bin-dir", "directory", "where --install-cni puts contivk8s; --uninstall removes it there").Must(checkPath).Else(cniBinDir + "; with --uninstall none")
	fs.String(&o.cniConfDir, "cni-conf-dir", "directory", "where --install-cni puts "+server.ConfFile+"; --uninstall removes it there").Must(checkPath).Else(cniConfDir + "; with --uninstall none")
}

// checkOnce refuses flags of what netplugin does once without it.
func (o *options) checkOnce(fs *flags.Set) error {
	switch {
	case o.force && !o.uninstall, o.stay && !o.uninstall:
		flag := "force"
		if o.stay {
			flag = "stay"
		}
		return flags.Usagef("%s has no effect without --uninstall", fs.Given(flag))
	case o.installCNI && o.uninstall:
		return flags.Usagef("--install-cni and --uninstall are opposites; omit one")
	}
	for _, flag := range []string{"cni-bin-dir", "cni-conf-dir"} {
		if how := fs.Given(flag); how != "" && !o.installCNI && !o.uninstall {
			return flags.Usagef("%s has no effect without --install-cni or --uninstall", how)
		}
	}
	return nil
}

// installCNI places the plugin that belongs to this program.
func installCNI(o options, stdout io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find contivk8s beside netplugin: %w", err)
	}
	c := server.InstallConfig{Program: filepath.Join(filepath.Dir(self), server.Plugin), BinDir: cniBinDir, ConfDir: cniConfDir}
	if o.cniBinDir != "" {
		c.BinDir = o.cniBinDir
	}
	if o.cniConfDir != "" {
		c.ConfDir = o.cniConfDir
	}
	if o.cniSocket != attach.SocketPath {
		c.Socket = o.cniSocket
	}
	if o.stateDir != attach.StateDir {
		c.StateDir = o.stateDir
	}
	if err := server.Install(c); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "installed %s and %s\n", filepath.Join(c.BinDir, server.Plugin), filepath.Join(c.ConfDir, server.ConfFile))
	return err
}
