package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// builtPrograms makes small programs under the names of ours.
func builtPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, programs[0])
	c := exec.CommandContext(t.Context(), "go", "build", "-o", first, source)
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range programs[1:] {
		// What is behind an ELF file's end does not matter to it.
		if err := os.WriteFile(filepath.Join(dir, name), append(bytes.Clone(data), byte(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func unpack(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = data
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %s", h.Name, h.Uid, h.Gid, h.Uname)
		}
	}
}

// TestImage: every digest matches the file it names, the layer has the programs and nothing
// else, and another run, elsewhere and later, makes the same bytes.
func TestImage(t *testing.T) {
	dir := builtPrograms(t)
	out := filepath.Join(t.TempDir(), "image.tar")
	args := []string{"-bin", dir, "-o", out, "-name", "registry.example:5000/contiv/contiv:2.0-1", "-time", "2026-11-24T05:00:00+01:00"}
	if err := run(args, io.Discard); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, bytes.NewReader(archive))
	for name, data := range files {
		if sum, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digest(data) != "sha256:"+sum {
			t.Errorf("%s has digest %s", name, digest(data))
		}
	}
	type ref struct {
		Digest      string
		Size        int
		Annotations map[string]string
	}
	var index struct{ Manifests []ref }
	var manifest struct {
		Config ref
		Layers []ref
	}
	var config struct {
		Architecture, OS, Created string
		Rootfs                    struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	var docker []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	get := func(data []byte, to any) {
		t.Helper()
		if err := json.Unmarshal(data, to); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
	}
	blobOf := func(r ref) []byte {
		t.Helper()
		data := files["blobs/"+strings.Replace(r.Digest, ":", "/", 1)]
		if len(data) != r.Size || r.Size == 0 {
			t.Fatalf("%s has %d bytes, %d are said", r.Digest, len(data), r.Size)
		}
		return data
	}
	get(files["index.json"], &index)
	get(blobOf(index.Manifests[0]), &manifest)
	get(blobOf(manifest.Config), &config)
	get(files["manifest.json"], &docker)
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != "registry.example:5000/contiv/contiv:2.0-1" || docker[0].RepoTags[0] != name ||
		index.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "2.0-1" {
		t.Errorf("names %q, %v", index.Manifests[0].Annotations, docker[0].RepoTags)
	}
	if !bytes.Equal(files[docker[0].Layers[0]], blobOf(manifest.Layers[0])) || !bytes.Equal(files[docker[0].Config], blobOf(manifest.Config)) {
		t.Error("docker's manifest names other blobs")
	}
	if config.Architecture != runtime.GOARCH || config.OS != "linux" || config.Created != "2026-11-24T04:00:00Z" {
		t.Errorf("config %+v", config)
	}
	r, err := gzip.NewReader(bytes.NewReader(blobOf(manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if digest(layer) != config.Rootfs.DiffIDs[0] {
		t.Error("the layer is not the one of the config")
	}
	want := map[string][]byte{}
	for _, name := range programs {
		if want["usr/bin/"+name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, unpack(t, bytes.NewReader(layer))); diff != "" {
		t.Error("the layer's files are not the programs")
	}
	moved := t.TempDir()
	if err := os.CopyFS(moved, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	args[1] = moved
	if err := run(args, io.Discard); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(out); err != nil || !bytes.Equal(archive, again) {
		t.Errorf("another run makes other bytes: %v", err)
	}
}

// TestRefused: what cannot become an image that works is said, and nothing is written.
func TestRefused(t *testing.T) {
	dir := builtPrograms(t)
	out := filepath.Join(t.TempDir(), "image.tar")
	good := map[string]string{"-bin": dir, "-o": out, "-name": "docker.io/contiv/contiv:2.0", "-time": "2026-11-24T04:00:00Z"}
	spoiled := func(data string) string {
		other := t.TempDir()
		if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(other, "netmaster"), []byte(data), 0o700); err != nil {
			t.Fatal(err)
		}
		return other
	}
	loader, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ flag, value, want string }{
		{"-bin", t.TempDir(), "make build"},
		{"-bin", spoiled("#!/bin/sh"), "no program of Linux"},
		{"-bin", spoiled(string(loader)), "CGO_ENABLED=0"},
		{"-name", "contiv", "registry/repository:tag"},
		{"-name", "contiv:2.0", "registry/repository:tag"},
		{"-name", "localhost:5000/contiv", "registry/repository:tag"},
		{"-time", "yesterday", "-time"},
		{"-o", "", "-o must"},
	} {
		var args []string
		for flag, value := range good {
			if flag == tc.flag {
				value = tc.value
			}
			args = append(args, flag, value)
		}
		if err := run(args, io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: %v, want %q", tc.flag, tc.value, err, tc.want)
		}
		if _, err := os.Stat(out); !os.IsNotExist(err) {
			t.Errorf("%s %s: something was written", tc.flag, tc.value)
		}
	}
}
