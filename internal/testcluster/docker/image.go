package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Image is the name of the image that Import makes.
const Image = "bb"

// Import makes an image of busybox: its tools, and a page /www/index.html that
// says ok.
func (e *Engine) Import(ctx context.Context) error {
	box, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		err = errors.Join(err, w.WriteHeader(&h))
		if len(data) > 0 {
			_, e := w.Write(data)
			err = errors.Join(err, e)
		}
	}
	add(tar.Header{Name: "bin/busybox", Mode: 0o755, Typeflag: tar.TypeReg}, box)
	add(tar.Header{Name: "www/index.html", Mode: 0o644, Typeflag: tar.TypeReg}, []byte("ok\n"))
	for n := range strings.FieldsSeq("sh sleep ip ping nc nslookup wget httpd cat hostname") {
		add(tar.Header{Name: "bin/" + n, Linkname: "busybox", Typeflag: tar.TypeSymlink}, nil)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("pack busybox: %w", err)
	}
	c := exec.CommandContext(ctx, CLI, "-H", "unix://"+e.Socket(), "import", "-", Image)
	c.Stdin = &b
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("docker import on %s: %w: %s", e.Host.Name, err, out)
	}
	return nil
}
