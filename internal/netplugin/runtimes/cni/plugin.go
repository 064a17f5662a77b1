package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// How long a verb may take; netplugin's own limits are shorter, so that its
// sentence arrives.
const (
	addTimeout   = 60 * time.Second
	delTimeout   = 30 * time.Second
	checkTimeout = 20 * time.Second
	gcTimeout    = 120 * time.Second
)

// Environment variables that stand in for keys of the configuration.
const (
	EnvSocket   = "CONTIV_CNI_SOCKET"
	EnvStateDir = "CONTIV_CNI_STATE_DIR"
)

// Run serves one invocation: the verb is in the environment, the configuration
// on stdin, the answer goes to stdout. It returns the exit code.
func Run(about string) int {
	var err error
	var conf []byte
	// The specification wants cniVersion in error results, and skel does not hand
	// out the configuration that it has read.
	if os.Getenv("CNI_COMMAND") != "" && os.Getenv("CNI_COMMAND") != "VERSION" {
		if conf, err = io.ReadAll(os.Stdin); err == nil {
			err = feedStdin(conf)
		}
		if err != nil {
			return write(ErrorObject(nil, types.NewError(types.ErrIOFailure, "read network configuration", err.Error())), 1)
		}
	}
	var p plugin
	e := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add:    func(a *skel.CmdArgs) error { return p.do(Add, addTimeout, a) },
		Del:    func(a *skel.CmdArgs) error { return p.do(Del, delTimeout, a) },
		Check:  func(a *skel.CmdArgs) error { return p.do(Check, checkTimeout, a) },
		GC:     func(a *skel.CmdArgs) error { return p.do(GC, gcTimeout, a) },
		Status: func(a *skel.CmdArgs) error { return p.do(Status, checkTimeout, a) },
	}, version.All, about)
	switch {
	case e == nil:
		return write(p.answer, 0)
	case p.refused:
		return write(p.answer, 1)
	}
	return write(ErrorObject(conf, e), 1)
}

// feedStdin makes data the standard input that skel reads. It uses a file in
// memory: unlike a pipe that takes any length without a concurrent writer.
func feedStdin(data []byte) error {
	fd, err := unix.MemfdCreate("conf", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "stdin")
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	os.Stdin = f
	return nil
}

func write(answer []byte, code int) int {
	if len(answer) == 0 {
		return code
	}
	if _, err := os.Stdout.Write(answer); err != nil {
		fmt.Fprintln(os.Stderr, "contivk8s: write answer:", err)
		return 1
	}
	return code
}

// plugin keeps netplugin's answer for stdout until skel has no objection.
type plugin struct {
	answer  []byte
	refused bool // answer is an error object
}

// local are the keys of the configuration that the plugin itself reads.
type local struct {
	Socket   string `json:"socket"`   // netplugin's; else $CONTIV_CNI_SOCKET, else attach.SocketPath
	StateDir string `json:"stateDir"` // netplugin's; else $CONTIV_CNI_STATE_DIR, else attach.StateDir
}

// do has netplugin serve a verb. A DEL that it cannot serve is spooled.
func (p *plugin) do(verb string, limit time.Duration, args *skel.CmdArgs) error {
	var c local
	if err := Decode(args.StdinData, &c); err != nil {
		return err
	}
	in := Invocation{
		Verb: verb, Container: args.ContainerID, Netns: args.Netns, IfName: args.IfName,
		Args: args.Args, Conf: args.StdinData,
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := p.ask(ctx, c.socket(), in)
	switch {
	case err == nil, p.refused:
		return err
	case verb == Del:
		return c.spoolDeletion(in, err)
	case verb == Status:
		return types.NewError(CodeUnavailable, "netplugin cannot attach containers now", err.Error())
	case errors.Is(err, attach.ErrUnreachable):
		return types.NewError(types.ErrTryAgainLater, "netplugin does not answer", err.Error())
	}
	return types.NewError(types.ErrTryAgainLater, "netplugin cannot serve this", err.Error())
}

// ask takes netplugin's answer. An error without p.refused means that netplugin
// has not served the verb.
func (p *plugin) ask(ctx context.Context, socket string, in Invocation) error {
	status, body, err := attach.Client{Socket: socket}.Exchange(ctx, in.target(), in.Conf)
	if err != nil {
		return err
	}
	switch status {
	case StatusDone:
		p.answer = body
		return nil
	case StatusRefused:
		p.answer, p.refused = body, true
		return errors.New("refused") // for skel; the runtime gets the answer
	case 404:
		return model.Errorf(model.ErrUnavailable, "netplugin does not know %s, so it is older than this contivk8s: upgrade netplugin (%s)",
			Path, bytes.TrimSpace(body))
	}
	return attach.AnswerError(status, body)
}

func (c local) socket() string {
	if c.Socket != "" {
		return c.Socket
	}
	return os.Getenv(EnvSocket)
}

func (c local) spool() attach.Spool {
	d := c.StateDir
	if d == "" {
		d = os.Getenv(EnvStateDir)
	}
	if d == "" {
		d = attach.StateDir
	}
	return attach.Spool{Dir: filepath.Join(d, attach.SpoolDir)}
}

// spoolDeletion leaves a DEL, which must not fail because netplugin is away, to the
// next netplugin; why says what is wrong with the present one.
func (c local) spoolDeletion(in Invocation, why error) error {
	req := attach.DetachRequest{Key: attach.Key{Container: in.Container, IfName: in.IfName}, Netns: in.Netns}
	if err := c.spool().Put(req); err != nil {
		return types.NewError(types.ErrTryAgainLater, "the deletion can be neither done nor spooled",
			why.Error()+"; "+err.Error())
	}
	fmt.Fprintf(os.Stderr, "contivk8s: %v; the deletion is spooled and netplugin will do it\n", why)
	return nil
}
