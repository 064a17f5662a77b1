package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// The images of containers, by the names that Kubernetes' own tests of this version
// pull. They are made here: nothing is pulled.
const (
	Pause   = "registry.k8s.io/pause:3.10.1"
	Busybox = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
	Agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.59"

	// For these agnhost's image stands, which has what they are wanted for: programs that ask
	// DNS, a container that runs, and conntrack.
	dnsutils = "registry.k8s.io/e2e-test-images/jessie-dnsutils:1.7"
	nginx    = "registry.k8s.io/e2e-test-images/nginx:1.14-4"
	iptables = "registry.k8s.io/build-image/distroless-iptables:v0.8.9"

	regression = "registry.k8s.io/e2e-test-images/regression-issue-74839:1.4"

	agnhostOfPolicyAPI = "registry.k8s.io/e2e-test-images/agnhost:2.45" // network-policy-api's tests name an older one
)

// bash runs a command and stays when that fails. By it network-policy-api's pods start
// servers, of SCTP too: where the kernel knows no SCTP that server ends, and its
// container must not, or no pod would be ready.
const bash = `#!/usr/bin/dash
/usr/bin/dash "$@" || exec /agnhost pause
`

// iperf writes in CSV the fields of version 2.2, as the tests read them, where the
// machine's is older: what that one does not tell is -1. All else it leaves to it.
const iperf = `#!/usr/bin/dash
case " $* " in
*" --reportstyle C "*) ;;
*) exec /usr/bin/iperf "$@" ;;
esac
out=$(/usr/bin/iperf "$@") || exit
case $out in
time,*) echo "$out" && exit ;;
esac
echo time,srcaddress,srcport,dstaddr,dstport,transferid,istart,iend,bytes,speed,writecnt,writeerr,tcpretry,tcpcwnd,tcppcwnd,tcprtt,tcprttvar
echo "$out" | while IFS=, read -r time src sport dst dport id interval bytes speed; do
	echo "$time,$src,$sport,$dst,$dport,$id,${interval%-*},${interval#*-},$bytes,$speed,-1,-1,-1,-1,-1,-1,-1"
done
`

// image is one layer with a command.
type image struct {
	names      []string
	entrypoint []string
	cmd        []string
	fill       func(context.Context, *layer) error
}

// images are the images on the nodes. Their programs are built by tools/kube.sh beside
// Kubernetes, or are Debian's busybox and others of the machine.
func images() []image {
	built := func(name string) string { return filepath.Join(filepath.Dir(os.Getenv(Program)), name) }
	all := []image{
		{names: []string{Pause}, entrypoint: []string{"/pause"}, fill: func(_ context.Context, l *layer) error {
			return l.file("/pause", built("pause"))
		}},
		{names: []string{Busybox}, cmd: []string{"sh"}, fill: userland},
		{names: []string{Agnhost, agnhostOfPolicyAPI, dnsutils, nginx, iptables}, entrypoint: []string{"/agnhost"}, cmd: []string{"pause"}, fill: func(ctx context.Context, l *layer) error {
			// First of all a shell that takes programs of the path before its own, as busybox's does not.
			l.link("/bin/sh", "/usr/bin/dash")
			if err := l.programs(ctx, "/usr/bin/dash", "/usr/bin/curl", "/usr/bin/wget", "/usr/sbin/ip", "/usr/bin/ss", "/usr/bin/nc.openbsd", "/usr/bin/iperf", "/usr/bin/dig", "/usr/bin/getent", "/usr/sbin/conntrack"); err != nil {
				return err
			}
			l.program("/bin/bash", []byte(bash))
			l.program("/usr/local/bin/iperf", []byte(iperf))
			l.text("/etc/wgetrc", "tries = 1\n") // as busybox's, which crashes on an address without a scheme
			if err := userland(ctx, l); err != nil {
				return err
			}
			l.link("/agnhost-2", "/agnhost")
			l.link("/usr/bin/nc", "nc.openbsd")
			// For Kubernetes' own tests, and built with those: DNS, and what agnhost serves by.
			for _, f := range []string{"coredns", "localhost.crt", "localhost.key"} {
				if err := l.file("/"+f, built(f)); err != nil && !errors.Is(err, os.ErrNotExist) {
					return err
				}
			}
			return l.file("/agnhost", built("agnhost"))
		}},
	}
	if _, err := os.Stat(built("regression-issue-74839")); err == nil { // it is built with Kubernetes' own tests
		all = append(all, image{names: []string{regression}, entrypoint: []string{"/regression-issue-74839"}, fill: func(_ context.Context, l *layer) error {
			return l.file("/regression-issue-74839", built("regression-issue-74839"))
		}})
	}
	return all
}

// userland is busybox, the files that users' and hosts' names are looked up in, and the
// directories that programs expect.
func userland(ctx context.Context, l *layer) error {
	for _, d := range []string{"tmp", "var", "root", "proc", "sys", "dev", "home", "etc", "bin", "sbin", "usr", "usr/bin", "usr/sbin"} {
		l.dir(d)
	}
	l.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
	l.text("/etc/group", "root:x:0:\nnogroup:x:65534:\n")
	l.text("/etc/nsswitch.conf", "hosts: files dns\n")
	applets, err := exec.CommandContext(ctx, "/usr/bin/busybox", "--list").Output()
	if err != nil {
		return fmt.Errorf("ask busybox for its programs (apt-get install busybox-static): %w", err)
	}
	for a := range strings.FieldsSeq(string(applets)) {
		if a != "busybox" {
			l.link("/bin/"+a, "/bin/busybox")
		}
	}
	return l.file("/bin/busybox", "/usr/bin/busybox")
}

// layer is a layer of an image in the making: the first error stays, done tells it.
type layer struct {
	w    *tar.Writer
	seen map[string]bool
	err  error
}

func (l *layer) add(h tar.Header, content io.Reader) {
	h.Name = strings.TrimPrefix(h.Name, "/")
	if l.err != nil || l.seen[h.Name] {
		return // the first of a name is meant
	}
	l.seen[h.Name] = true
	if l.err = l.w.WriteHeader(&h); l.err == nil && content != nil {
		_, l.err = io.Copy(l.w, content)
	}
}

func (l *layer) dir(name string) {
	mode := int64(0o755)
	if name == "tmp" {
		mode = 0o1777
	}
	l.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (l *layer) link(name, to string) {
	l.add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, nil)
}

func (l *layer) text(name, content string) {
	l.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}, strings.NewReader(content))
}

// file is a program of the machine.
func (l *layer) file(name, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	l.program(name, b)
	return l.err
}

func (l *layer) program(name string, content []byte) {
	l.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}, bytes.NewReader(content))
}

// programs are programs of the machine with the libraries that they are linked with.
// What the machine lacks is left out.
func (l *layer) programs(ctx context.Context, paths ...string) error {
	for _, p := range paths {
		if _, err := os.Stat(p); errors.Is(err, os.ErrNotExist) {
			continue
		}
		needs, err := exec.CommandContext(ctx, "ldd", p).Output()
		if err != nil {
			return fmt.Errorf("ask what %s is linked with: %w", p, err)
		}
		for f := range strings.FieldsSeq(string(needs)) {
			if !strings.HasPrefix(f, "/") {
				continue
			}
			if err := l.file(f, f); err != nil {
				return err
			}
		}
		if err := l.file(path.Join("/usr/bin", path.Base(p)), p); err != nil {
			return err
		}
	}
	return nil
}

// write writes the image as an archive that `ctr images import` reads.
func (i image) write(ctx context.Context, file string) error {
	var content bytes.Buffer
	l := &layer{w: tar.NewWriter(&content), seen: map[string]bool{}}
	if err := errors.Join(i.fill(ctx, l), l.err, l.w.Close()); err != nil {
		return fmt.Errorf("make the image %s: %w", i.names[0], err)
	}
	type object = map[string]any
	config, err := json.Marshal(object{
		"architecture": "amd64", "os": "linux", "created": "1970-01-01T00:00:00Z",
		"config": object{"Entrypoint": i.entrypoint, "Cmd": i.cmd, "Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(content.Bytes()))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]object{{"Config": "config.json", "RepoTags": i.names, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	for _, f := range []struct {
		name    string
		content []byte
	}{{"manifest.json", manifest}, {"config.json", config}, {"layer.tar", content.Bytes()}} {
		if err == nil {
			err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.content))})
		}
		if err == nil {
			_, err = w.Write(f.content)
		}
	}
	return errors.Join(err, w.Close(), out.Close())
}
