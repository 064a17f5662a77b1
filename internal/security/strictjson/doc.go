// Package strictjson is how every listener reads JSON that a client sends.
//
// It guarantees that input which would mean less or more than its sender thinks is
// refused: fields that nobody reads, anything behind the object, other encodings. A
// refusal names the field and what is expected, and is of kind model.ErrInvalid.
//
// It must not be used for answers of servers, files and rows of the store: a newer
// program may have written those.
package strictjson
