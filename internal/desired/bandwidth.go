package desired

// Rate is how much a port's endpoint may send. No picture has one before issue 16,
// which compiles them of net profiles and adds rates of what it receives.
type Rate struct {
	Bits  uint64 // a second
	Burst uint64 // bytes beyond it at once
}
