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

// programs are what the image holds, in /usr/bin.
var programs = []string{"contivk8s", "netctl", "netmaster", "netplugin"}

// image is a finished one.
type image struct {
	archive []byte
	digest  string // of its manifest
}

// build makes an archive that is an OCI layout and, by manifest.json, what docker
// load takes too.
func build(bin, name string, created time.Time) (image, error) {
	layer, arch, err := buildLayer(bin, created)
	if err != nil {
		return image{}, err
	}
	packed, err := compress(layer)
	if err != nil {
		return image{}, err
	}
	config, err := json.Marshal(map[string]any{
		"created": created.Format(time.RFC3339), "architecture": arch, "os": "linux",
		"config": map[string]any{
			"Env":    []string{"PATH=/usr/bin"},
			"Labels": map[string]string{"org.opencontainers.image.source": "https://github.com/contiv/netplugin", "org.opencontainers.image.licenses": "Apache-2.0"},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
		"history": []map[string]any{{"created": created.Format(time.RFC3339), "created_by": "make image"}},
	})
	if err != nil {
		return image{}, err
	}
	const oci = "application/vnd.oci.image."
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": oci + "manifest.v1+json",
		"config": descriptor(oci+"config.v1+json", config), "layers": []any{descriptor(oci+"layer.v1.tar+gzip", packed)},
	})
	if err != nil {
		return image{}, err
	}
	of := descriptor(oci+"manifest.v1+json", manifest)
	of["platform"] = map[string]string{"architecture": arch, "os": "linux"}
	of["annotations"] = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name[strings.LastIndex(name, ":")+1:]}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": oci + "index.v1+json", "manifests": []any{of}})
	if err != nil {
		return image{}, err
	}
	docker, err := json.Marshal([]any{map[string]any{"Config": blob(config), "RepoTags": []string{name}, "Layers": []string{blob(packed)}}})
	if err != nil {
		return image{}, err
	}
	var b bytes.Buffer
	w := packer{tar.NewWriter(&b), created, nil}
	w.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644)
	w.file("index.json", index, 0o644)
	w.file("manifest.json", docker, 0o644)
	w.directory("blobs/", 0o755)
	w.directory("blobs/sha256/", 0o755)
	for _, data := range [][]byte{config, manifest, packed} {
		w.file(blob(data), data, 0o644)
	}
	return image{b.Bytes(), digest(manifest)}, w.close()
}

// buildLayer packs the programs, which must be able to run with nothing beside them.
func buildLayer(bin string, created time.Time) (layer []byte, arch string, err error) {
	var b bytes.Buffer
	w := packer{tar.NewWriter(&b), created, nil}
	for _, dir := range []string{"etc/", "run/", "usr/", "usr/bin/", "var/", "var/lib/"} {
		w.directory(dir, 0o755)
	}
	w.directory("tmp/", 0o1777)
	w.link("var/run", "../run")
	for _, name := range programs {
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
	}
	return b.Bytes(), arch, w.close()
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
	tar  *tar.Writer
	time time.Time
	err  error
}

func (w *packer) add(h *tar.Header, data []byte) {
	h.ModTime, h.Size, h.Format = w.time, int64(len(data)), tar.FormatPAX
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

func (w *packer) close() error {
	if w.err != nil {
		return fmt.Errorf("pack: %w", w.err)
	}
	return w.tar.Close()
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

func blob(data []byte) string {
	return "blobs/" + strings.Replace(digest(data), ":", "/", 1)
}

func descriptor(mediaType string, data []byte) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": digest(data), "size": len(data)}
}
