package apiserver

// field says what a field of an object may hold: in words, and as far as JSON
// Schema can say it. The words are those of the API's description and of
// docs/user/fields.md; a test holds model's parsers to them.
type field struct {
	text     string
	enum     []string
	min, max int // of an integer; both zero = none
	required bool
}

const (
	nameText = "letters, digits and inner hyphens, in labels joined by dots, at most 64 characters"
	longText = "letters, digits and inner hyphens, in labels joined by dots, at most 256 characters"
	tagText  = "letters, digits and inner hyphens, in labels joined by dots, at most 128 characters; empty = none"
)

// ownerField is whose an object is.
func ownerField() field {
	return field{text: "told, not asked for: kubernetes for one that an object of Kubernetes has, where alone it is changed; empty = the users'"}
}

func tenantField() field {
	return field{text: "a tenant that exists: " + nameText, required: true}
}
