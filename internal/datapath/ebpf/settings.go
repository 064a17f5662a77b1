package ebpf

// programSettings is the entry that all programs read: struct settings of bpf/maps.h.
type programSettings struct {
	Settings table[uint32, settings] `map:"settings,global,fixed"`
}

func (t *programSettings) get() settings { return t.Settings.have[0] }

func (t *programSettings) put(s settings) error { return t.Settings.put(0, s) }

// putQuietly is put for a change that is not counted as one of the desired state.
func (t *programSettings) putQuietly(s settings) error {
	t.Settings.quiet = true
	defer func() { t.Settings.quiet = false }()
	return t.put(s)
}

// newGeneration makes every cached verdict stale.
func (t *programSettings) newGeneration() error {
	w := t.Settings.w
	defer func(fault func() error) { w.fault = fault }(w.fault)
	w.fault = nil
	s := t.get()
	s.Epoch++
	return t.putQuietly(s)
}

// setMonitor sets the bits of the monitor.
func (t *programSettings) setMonitor(bits uint32) error {
	s := t.get()
	s.Monitor = bits
	return t.putQuietly(s)
}
