package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// spec is what an image is made of.
type spec struct {
	bins     []string // directories of built programs, one for each architecture
	programs []string // what the image holds, in /usr/bin
	name     string   // with registry and tag
	user     int      // runs the programs and owns stateDir
	revision string   // commit of the programs
	created  time.Time
}

const (
	stateDir = "var/lib/contiv/" // of the programs: a volume is mounted there
	docDir   = "usr/share/doc/contiv/"

	oci = "application/vnd.oci.image."
)

// image is a finished one.
type image struct {
	archive []byte
	digest  string // of its index
}

// build makes an archive that is an OCI layout with one index of all architectures and, by
// manifest.json, what docker load takes too. That knows no architectures: of several, each
// image gets a tag of its own there.
func build(s spec) (image, error) {
	var blobs [][]byte
	var platforms, loads []any
	names := map[string]string{} // by architecture
	for _, bin := range s.bins {
		layer, arch, err := s.layer(bin)
		if err != nil {
			return image{}, err
		}
		if names[arch] != "" {
			return image{}, fmt.Errorf("%s is for %s as another directory is: give one for each architecture", bin, arch)
		}
		names[arch] = s.name
		if len(s.bins) > 1 {
			names[arch] += "-" + arch
		}
		packed, err := compress(layer)
		if err != nil {
			return image{}, err
		}
		config, err := s.config(arch, layer)
		if err != nil {
			return image{}, err
		}
		manifest, err := json.Marshal(map[string]any{
			"schemaVersion": 2, "mediaType": oci + "manifest.v1+json",
			"config": descriptor(oci+"config.v1+json", config), "layers": []any{descriptor(oci+"layer.v1.tar+gzip", packed)},
		})
		if err != nil {
			return image{}, err
		}
		platform := descriptor(oci+"manifest.v1+json", manifest)
		platform["platform"] = map[string]string{"architecture": arch, "os": "linux"}
		platforms = append(platforms, platform)
		loads = append(loads, map[string]any{"Config": blobPath(config), "RepoTags": []string{names[arch]}, "Layers": []string{blobPath(packed)}})
		blobs = append(blobs, config, manifest, packed)
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": oci + "index.v1+json", "manifests": platforms, "annotations": s.labels()})
	if err != nil {
		return image{}, err
	}
	archive, err := s.pack(index, loads, append(blobs, index))
	return image{archive, digest(index)}, err
}

// pack writes the archive of an index and of the blobs.
func (s spec) pack(index []byte, loads []any, blobs [][]byte) ([]byte, error) {
	top := descriptor(oci+"index.v1+json", index)
	top["annotations"] = map[string]string{"io.containerd.image.name": s.name, "org.opencontainers.image.ref.name": s.tag()}
	layout, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": oci + "index.v1+json", "manifests": []any{top}})
	if err != nil {
		return nil, err
	}
	docker, err := json.Marshal(loads)
	if err != nil {
		return nil, err
	}
	w := newPacker(s.created)
	w.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644)
	w.file("index.json", layout, 0o644)
	w.file("manifest.json", docker, 0o644)
	w.directory("blobs/", 0o755)
	w.directory("blobs/sha256/", 0o755)
	for _, data := range blobs {
		w.file(blobPath(data), data, 0o644)
	}
	return w.close()
}

// config is how the image is run on an architecture.
func (s spec) config(arch string, layer []byte) ([]byte, error) {
	run := map[string]any{"Env": []string{"PATH=/usr/bin"}, "Labels": s.labels()}
	if s.user != 0 {
		run["User"] = fmt.Sprintf("%d:%d", s.user, s.user)
	}
	return json.Marshal(map[string]any{
		"created": s.created.Format(time.RFC3339), "architecture": arch, "os": "linux", "config": run,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
		"history": []map[string]any{{"created": s.created.Format(time.RFC3339), "created_by": "make image"}},
	})
}

// labels say what the image is. Registries show them as annotations of the index too.
func (s spec) labels() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":       "Contiv",
		prefix + "description": "Networks and policy for containers: " + strings.Join(s.programs, ", "),
		prefix + "version":     s.tag(),
		prefix + "revision":    s.revision,
		prefix + "created":     s.created.Format(time.RFC3339),
		prefix + "source":      "https://github.com/contiv/netplugin",
		prefix + "licenses":    "Apache-2.0 AND (MIT OR GPL-2.0-only)", // the latter is of the eBPF programs
	}
}

func (s spec) tag() string { return s.name[strings.LastIndex(s.name, ":")+1:] }

// layer packs the programs, which must be able to run with nothing beside them, and the
// licences that lie beside them.
func (s spec) layer(bin string) (layer []byte, arch string, err error) {
	w := newPacker(s.created)
	for _, dir := range []string{"etc/", "run/", "usr/", "usr/bin/", "usr/share/", "usr/share/doc/", docDir, "var/", "var/lib/"} {
		w.directory(dir, 0o755)
	}
	w.directory("tmp/", 0o1777)
	w.link("var/run", "../run")
	w.owner = s.user
	w.directory(stateDir, 0o755)
	w.owner = 0
	for _, name := range s.programs {
		path := filepath.Join(bin, name)
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, "", fmt.Errorf("%w: build the programs first (make build)", err)
		}
		a, err := architecture(data)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", path, err)
		}
		if arch != "" && a != arch {
			return nil, "", fmt.Errorf("%s is for %s, others are for %s: build all of them (make build)", path, a, arch)
		}
		arch = a
		w.file("usr/bin/"+name, data, 0o755)
		if name == "netctl" {
			w.link("usr/bin/kubectl-contiv", name) // 'kubectl contiv'
		}
	}
	licences, err := filepath.Glob(filepath.Join(bin, "LICENSE*")) // sorted
	if err != nil {
		return nil, "", err
	}
	for _, path := range licences {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, "", err
		}
		w.file(docDir+filepath.Base(path), data, 0o644)
	}
	layer, err = w.close()
	return layer, arch, err
}

// architecture is Go's name of what a program runs on.
func architecture(program []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", fmt.Errorf("it is no program of Linux: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", errors.New("it needs libraries, which the image has not: build it with CGO_ENABLED=0 (make build)")
		}
	}
	arch, known := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[f.Machine]
	if known {
		return arch, nil
	}
	return "", fmt.Errorf("it is for a machine (%s) that images are not made for: amd64 and arm64 are", f.Machine)
}

// packer writes a tar whose bytes depend on nothing but what is put into it.
type packer struct {
	bytes bytes.Buffer
	tar   *tar.Writer
	time  time.Time
	owner int
	err   error
}

func newPacker(at time.Time) *packer {
	w := &packer{time: at}
	w.tar = tar.NewWriter(&w.bytes)
	return w
}

func (w *packer) add(h *tar.Header, data []byte) {
	h.ModTime, h.Size, h.Format, h.Uid, h.Gid = w.time, int64(len(data)), tar.FormatPAX, w.owner, w.owner
	if w.err == nil {
		w.err = w.tar.WriteHeader(h)
	}
	if w.err == nil {
		_, w.err = w.tar.Write(data)
	}
}

func (w *packer) file(name string, data []byte, mode int64) {
	w.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, data)
}

func (w *packer) directory(name string, mode int64) {
	w.add(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}, nil)
}

func (w *packer) link(name, to string) {
	w.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, nil)
}

// close returns the whole tar.
func (w *packer) close() ([]byte, error) {
	if w.err == nil {
		w.err = w.tar.Close()
	}
	if w.err != nil {
		return nil, fmt.Errorf("pack: %w", w.err)
	}
	return w.bytes.Bytes(), nil
}

func compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err := w.Close()
	return b.Bytes(), err
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func blobPath(data []byte) string {
	return "blobs/" + strings.Replace(digest(data), ":", "/", 1)
}

func descriptor(mediaType string, data []byte) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": digest(data), "size": len(data)}
}
