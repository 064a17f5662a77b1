package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// programs are what the image is made with unless a test says otherwise.
var programs = []string{"contivk8s", "netctl", "netmaster", "netplugin"}

// builtPrograms makes the smallest programs for a machine under the names of ours, and a licence.
func builtPrograms(t *testing.T, machine elf.Machine) string {
	t.Helper()
	header, err := binary.Append(nil, binary.LittleEndian, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, name := range append([]string{"LICENSE"}, programs...) {
		// What is behind an ELF file's end does not matter to it.
		if err := os.WriteFile(filepath.Join(dir, name), append(bytes.Clone(header), byte(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// unpack returns the files of a tar, and checks that it has an end, and that only the state's
// directory has an owner.
func unpack(t *testing.T, archive []byte, owner int) map[string][]byte {
	t.Helper()
	if end := make([]byte, 1024); !bytes.HasSuffix(archive, end) {
		t.Error("the tar has no end")
	}
	files := map[string][]byte{}
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
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
		want := 0
		if h.Name == stateDir {
			want = owner
		}
		if h.Uid != want || h.Gid != want || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %s", h.Name, h.Uid, h.Gid, h.Uname)
		}
	}
}

// ref names a blob of a layout.
type ref struct {
	MediaType, Digest string
	Size              int
	Annotations       map[string]string
	Platform          struct{ Architecture, OS string }
}

// config is as much of an image's as tests ask for.
type config struct {
	Architecture, OS, Created string
	Config                    struct {
		User   string
		Labels map[string]string
	}
	Rootfs struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

// layout is an archive that was read.
type layout struct {
	t     *testing.T
	files map[string][]byte
}

func (l layout) get(data []byte, to any) {
	l.t.Helper()
	if err := json.Unmarshal(data, to); err != nil {
		l.t.Fatalf("%s: %v", data, err)
	}
}

func (l layout) blob(r ref) []byte {
	l.t.Helper()
	data := l.files["blobs/"+strings.Replace(r.Digest, ":", "/", 1)]
	if len(data) != r.Size || r.Size == 0 || digest(data) != r.Digest {
		l.t.Fatalf("%s has %d bytes and digest %s, %d bytes are said", r.Digest, len(data), digest(data), r.Size)
	}
	return data
}

// image returns the config and the layer of a manifest.
func (l layout) image(of ref) (c config, packed, layer []byte) {
	l.t.Helper()
	var manifest struct {
		Config ref
		Layers []ref
	}
	l.get(l.blob(of), &manifest)
	l.get(l.blob(manifest.Config), &c)
	packed = l.blob(manifest.Layers[0])
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		l.t.Fatal(err)
	}
	if layer, err = io.ReadAll(r); err != nil {
		l.t.Fatal(err)
	}
	if len(manifest.Layers) != 1 || len(c.Rootfs.DiffIDs) != 1 || digest(layer) != c.Rootfs.DiffIDs[0] {
		l.t.Error("the layer is not the one of the config")
	}
	return c, packed, layer
}

// TestImageIsCompleteAndReproducible: the index has each architecture, every digest matches what it names, the layers
// have the programs and licences and nothing else, and another run, elsewhere and later, makes
// the same bytes. docker load gets a tag for each architecture, and the name itself of one alone.
func TestImageIsCompleteAndReproducible(t *testing.T) {
	const name = "registry.example:5000/contiv/contiv:2.0-1"
	bins := map[string]string{"amd64": builtPrograms(t, elf.EM_X86_64), "arm64": builtPrograms(t, elf.EM_AARCH64)}
	for _, tc := range []struct {
		archs, programs []string
		user            string
		loads           []string
	}{
		{[]string{"amd64", "arm64"}, programs, "", []string{name + "-amd64", name + "-arm64"}},
		{[]string{"arm64"}, []string{"netctl", "netmaster"}, "65532", []string{name}},
	} {
		out := filepath.Join(t.TempDir(), "image.tar")
		imageOf := func(dirs ...string) []byte {
			t.Helper()
			args := []string{"-bin", strings.Join(dirs, ","), "-o", out, "-name", name, "-time", "2026-11-24T05:00:00+01:00", "-revision", "0123456789ab", "-programs", strings.Join(tc.programs, ",")}
			if tc.user != "" {
				args = append(args, "-user", tc.user)
			}
			if err := run(args, io.Discard); err != nil {
				t.Fatal(err)
			}
			archive, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			return archive
		}
		var dirs, moved []string
		for _, arch := range tc.archs {
			dirs, moved = append(dirs, bins[arch]), append(moved, t.TempDir())
			if err := os.CopyFS(moved[len(moved)-1], os.DirFS(bins[arch])); err != nil {
				t.Fatal(err)
			}
		}
		archive := imageOf(dirs...)
		if !bytes.Equal(archive, imageOf(moved...)) {
			t.Error("another run makes other bytes")
		}
		l := layout{t, unpack(t, archive, 0)}
		var top, index struct{ Manifests []ref }
		l.get(l.files["index.json"], &top)
		if len(top.Manifests) != 1 || top.Manifests[0].MediaType != oci+"index.v1+json" || top.Manifests[0].Annotations["io.containerd.image.name"] != name || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "2.0-1" {
			t.Fatalf("the layout has %+v", top)
		}
		l.get(l.blob(top.Manifests[0]), &index)
		var docker []struct {
			Config   string
			RepoTags []string
			Layers   []string
		}
		l.get(l.files["manifest.json"], &docker)
		if len(index.Manifests) != len(tc.archs) || len(docker) != len(tc.archs) {
			t.Fatalf("%d and %d images of %v", len(index.Manifests), len(docker), tc.archs)
		}
		for i, arch := range tc.archs {
			c, packed, layer := l.image(index.Manifests[i])
			if p := index.Manifests[i].Platform; p.Architecture != arch || p.OS != "linux" || c.Architecture != arch || c.OS != "linux" || c.Created != "2026-11-24T04:00:00Z" {
				t.Errorf("%s: platform %+v, config %+v", arch, p, c)
			}
			labels := c.Config.Labels
			if labels["org.opencontainers.image.version"] != "2.0-1" || labels["org.opencontainers.image.revision"] != "0123456789ab" {
				t.Errorf("%s: labels %v", arch, labels)
			}
			owner := 0
			if tc.user != "" {
				owner = 65532
			}
			if want := strings.TrimPrefix(tc.user+":"+tc.user, ":"); c.Config.User != want {
				t.Errorf("%s: user %q, want %q", arch, c.Config.User, want)
			}
			if loaded := l.files[docker[i].Config]; docker[i].RepoTags[0] != tc.loads[i] || !bytes.Contains(loaded, []byte(arch)) || !bytes.Equal(l.files[docker[i].Layers[0]], packed) {
				t.Errorf("%s: docker load takes %+v", arch, docker[i])
			}
			want := map[string][]byte{}
			for _, file := range append([]string{"LICENSE"}, tc.programs...) {
				at := "usr/bin/" + file
				if file == "LICENSE" {
					at = docDir + file
				}
				var err error
				if want[at], err = os.ReadFile(filepath.Join(bins[arch], file)); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, unpack(t, layer, owner)); diff != "" {
				t.Errorf("%s: the layer's files are not the programs: %s", arch, diff)
			}
		}
	}
}

// TestUnusableImagesAreRefused: what cannot become an image that works is said, and nothing is written.
func TestUnusableImagesAreRefused(t *testing.T) {
	dir := builtPrograms(t, elf.EM_X86_64)
	out := filepath.Join(t.TempDir(), "image.tar")
	good := map[string]string{"-programs": "netctl,netmaster", "-bin": dir, "-o": out, "-name": "docker.io/contiv/contiv:2.0", "-time": "2026-11-24T04:00:00Z"}
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
		{"-bin", dir + "," + dir, "one for each architecture"},
		{"-programs", "netctl,netagent", "make build"},
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
