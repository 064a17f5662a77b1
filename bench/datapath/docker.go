package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// boxScript makes a mount namespace with a /run/docker of its own, and stays.
const boxScript = `set -e
mkdir -p /run/docker
mount -t tmpfs -o size=1m contiv-bench /run/docker
echo ready
exec sleep 86400`

// docker is two namespaces on the bridge of a Docker engine of its own, with
// the engine's iptables rules: what its containers' packets meet.
func (r testbed) docker(ctx context.Context) (path, error) {
	h, err := r.Namespace()
	if err == nil {
		err = r.engine(ctx, h)
	}
	if err != nil {
		return path{}, err
	}
	return r.plugged(ctx, "Docker's bridge (20.10)", h, "docker0", [2]netip.Addr{netip.MustParseAddr("10.8.4.1"), netip.MustParseAddr("10.8.4.2")})
}

// engine starts a Docker engine on a host, in a mount namespace of its own.
func (r testbed) engine(ctx context.Context, h *testcluster.Namespace) error {
	box := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "sh", "-c", boxScript)
	out, err := box.StdoutPipe()
	if err == nil {
		err = box.Start()
	}
	if err != nil {
		return err
	}
	r.OnClose(func() error {
		_ = box.Process.Kill() // it may have ended
		_ = box.Wait()         // it was killed
		return nil
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("mount namespace of the Docker engine: %w", err)
	}
	dir := filepath.Join(r.Lab.Config().Dir, "docker")
	cmd := h.Command(ctx, "nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", box.Process.Pid), "/usr/sbin/dockerd",
		"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "x"), "--pidfile", filepath.Join(dir, "pid"),
		"-H", "unix://"+filepath.Join(dir, "docker.sock"), "--bip", "10.8.4.254/24", "--mtu", rig.MTU)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the engine has its own
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }() // how it ended is in its log
	r.OnClose(func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-done
		return nil
	})
	wait, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	err = testcluster.Until(wait, "Docker engine answers", func(ctx context.Context) error {
		select {
		case <-done:
			return errors.New("it has ended")
		default:
		}
		return rig.Run(ctx, "/usr/bin/docker", "-H", "unix://"+filepath.Join(dir, "docker.sock"), "version")
	})
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}
