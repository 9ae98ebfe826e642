package tenant

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Why the form of an identity is refused; to be tested with [errors.Is].
var (
	ErrForm  = errors.New("a name begins or ends with white space, or contains an invisible character")
	ErrLarge = errors.New("the identity exceeds the limits")
)

// DefaultLimits are generous: a directory allows 1,015 groups for one user (Active Directory,
// access tokens), and each of 2,000 may have a name of 64 bytes.
func DefaultLimits() Limits { return Limits{Bytes: 128 << 10, Groups: 2000} }

// Limits bound an identity. The zero value lets no identity through.
type Limits struct {
	// Bytes of all names, groups, extra keys and values together.
	Bytes int
	// Groups is their number.
	Groups int
}

// OrDefault returns l, or [DefaultLimits] for the zero value.
func (l Limits) OrDefault() Limits {
	if l == (Limits{}) {
		return DefaultLimits()
	}
	return l
}

// Check returns [ErrForm] unless each name that u bears can be written in one way only, and
// [ErrLarge] if u is larger than the limits. What it lets through reads the same after any hop over
// HTTP, which trims white space (RFC 9110, section 5.5). Names that only look alike, by other
// letters or by compositions of Unicode, stay apart.
func (l Limits) Check(u user.Info) error {
	groups := u.GetGroups()
	size := len(u.GetName()) + len(u.GetUID())
	well := IsWellFormed(u.GetName()) && IsWellFormed(u.GetUID())
	for _, group := range groups {
		size += len(group)
		well = well && size <= l.Bytes && IsWellFormed(group)
	}
	for key, values := range u.GetExtra() {
		size += len(key)
		well = well && size <= l.Bytes && IsWellFormed(key)
		for _, value := range values {
			size += len(value)
			well = well && size <= l.Bytes && IsWellFormedValue(value)
		}
	}
	switch {
	case size > l.Bytes || len(groups) > l.Groups:
		return ErrLarge
	case !well:
		return ErrForm
	}
	return nil
}

// IsWellFormed reports whether a name of a user or group, a UID or an extra key has one form only:
// UTF-8 that neither begins nor ends with white space and holds no control character (Cc), no line
// or paragraph separator (Zl, Zp), no filler (Other_Default_Ignorable_Code_Point) and no format
// character (Cf) but the two joiners between letters, which Persian and Indic names need. The
// empty name is well-formed.
func IsWellFormed(name string) bool { return Malformation(name) < 0 }

// IsWellFormedValue reports whether the value of an extra neither begins nor ends with white
// space and holds no control character. Unlike a name it may hold what people do not see:
// nothing is decided by it.
func IsWellFormedValue(value string) bool {
	return utf8.ValidString(value) && strings.TrimSpace(value) == value && !strings.ContainsFunc(value, unicode.IsControl)
}

// Malformation returns the index of the first rune for which a name is not
// well-formed, -1 if it is.
func Malformation(name string) int {
	for i := range len(name) {
		// Most names are visible ASCII and are seen through here.
		if c := name[i]; c <= ' ' || c >= 0x7f {
			return malformation(name)
		}
	}
	return -1
}

func malformation(name string) int {
	trailing := len(strings.TrimRightFunc(name, unicode.IsSpace))
	before := rune(-1)
	for i, r := range name {
		width := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, width = utf8.DecodeRuneInString(name[i:])
		}
		switch {
		case r == utf8.RuneError && width == 1: // no UTF-8
			return i
		case unicode.IsSpace(r) && (i == 0 || i >= trailing),
			unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point):
			return i
		case unicode.Is(unicode.Cf, r):
			after, _ := utf8.DecodeRuneInString(name[i+width:])
			if !isJoiner(r) || !unicode.In(before, unicode.L, unicode.M) || !unicode.In(after, unicode.L, unicode.M) {
				return i
			}
		}
		before = r
	}
	return -1
}

// isJoiner is for the zero width non-joiner and joiner.
func isJoiner(r rune) bool { return r == '\u200c' || r == '\u200d' }
