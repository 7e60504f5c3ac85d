//! What must hold for the users of images whoever made them: for the fuzz targets (feature
//! `fuzzing`).
//!
//! Panics if something does not hold. Nothing here is part of the helper.

use coracle_shim_protocol::UserRequest;

use super::user;

/// Between the image's USER, its `/etc/passwd` and its `/etc/group`.
const SEPARATOR: &str = "\n\n";

/// Nobody is who the kernel cannot name, or root by another name; a number is that number.
pub fn image_user(text: &str) {
    let (image_user, files) = text.split_once(SEPARATOR).unwrap_or((text, ""));
    let (passwd, group) = files.split_once(SEPARATOR).unwrap_or((files, ""));
    for non_root in [false, true] {
        let request = UserRequest {
            image_user: Some(image_user.to_owned()),
            non_root,
            ..UserRequest::default()
        };
        let Ok(found) = user::plan(&request, passwd, group) else {
            continue;
        };
        let ids = [found.uid, found.gid]
            .into_iter()
            .chain(found.groups.iter().copied());
        assert!(ids.max() <= Some(user::MAX_ID), "{found:?}");
        assert!(!non_root || found.uid != 0, "{found:?}");
        assert_eq!(found.groups.first(), Some(&found.gid), "{found:?}");
        let name = image_user.trim().split(':').next().unwrap_or_default();
        if let Ok(uid) = name.parse::<u32>() {
            assert_eq!(found.uid, uid);
        }
    }
}
